package recovery

import "github.com/gpumux/gpumux"

type Step int

const (
	// Elsewhere: another worker tries.
	Elsewhere Step = iota
	// End: no try can help, and the map ends.
	End
	// Wait: the chunk is tried again after a growing pause, and no item loses an attempt.
	Wait
	// Rerun: the chunk is tried again at once. History says how its items run.
	Rerun
	// NextPool: the item needs the next pool of the ladder.
	NextPool
	// NextPoolAll: all items of the chunk that are left do.
	NextPoolAll
	// Record: the fault is the item's result.
	Record
)

const (
	// MaxRefused is how often in a row workers may refuse a chunk for their edition before
	// one of them looks whether any has it.
	MaxRefused = 30
	// MaxBlameless is how often in a row a chunk waits for a device or a host. With
	// Temporal's growing pause that takes about four minutes.
	MaxBlameless = 30
	// maxStarts is how often a process may fail to start for a chunk, maxSlowStarts how
	// often it may take too long, which costs minutes each time, or not fit.
	maxStarts, maxSlowStarts = 5, 2
	// maxDeathsAlone is how often an item may end a process that ran nothing else.
	maxDeathsAlone = 2
)

// rule is one line of the table. The first whose condition holds decides.
type rule struct {
	// When and Then are the words of docs/faults.md; Then also those of the log.
	When, Then string
	Step       Step
	holds      func(event) bool
}

// rules are in the order in which they are tried.
var rules = []rule{
	{"the worker has another edition of the task's code", "another worker tries; if none has the edition, the map ends", Elsewhere,
		func(e event) bool { return e.fault.Edition != "" }},
	{"`bad_input`", "the map ends", End,
		func(e event) bool { return e.fault.Kind == gpumux.FaultBadInput }},
	{"a fault of the device, its driver or the host, up to 29 times in a row", "the chunk is tried again after a growing pause", Wait,
		func(e event) bool { return e.waits }},
	{"no process starts, up to 4 times, or once if it takes too long or does not fit", "the chunk is tried again after a growing pause", Wait,
		func(e event) bool { return e.starts > 0 && e.starts < startsOf(e.fault) }},
	{"no process starts for want of memory, and there is a next pool", "all items of the chunk go to the next pool", NextPoolAll,
		func(e event) bool { return e.starts > 0 && e.fault.Kind.Memory() && e.larger }},
	{"no process starts", "the map ends", End,
		func(e event) bool { return e.starts > 0 }},
	{"every item under way has its result by then", "the rest of the chunk goes on", Rerun,
		func(e event) bool { return !e.open }},
	{"a first process ends with items that ran at the same time", "what ran at the same time is tried again as it was", Rerun,
		func(e event) bool { return e.item == nil && e.fault.Concurrent && !e.searching }},
	{"a second process ends with some of them", "half of what ran at the same time is tried again, until the item is found", Rerun,
		func(e event) bool { return e.item == nil && e.fault.Concurrent }},
	{"a process ends with a micro-batch", "half of the micro-batch is tried again, until the item is found", Rerun,
		func(e event) bool { return e.item == nil }},
	{"a fault of an item reaches every process on a device with `sharing: mps`", "it is tried again alone, with the whole device; only there it counts", Rerun,
		func(e event) bool { return e.item.Wide && e.item.Alone < maxDeathsAlone }},
	{"an item ends a process alone for want of memory, the first time", "it is tried again alone, with the whole device", Rerun,
		func(e event) bool { return e.item.NeedsDevice() && e.item.Alone < maxDeathsAlone }},
	{"an item ends a process after others ran there, or alone for the first time", "it is tried again alone in a clean process", Rerun,
		func(e event) bool { return e.item.Alone < maxDeathsAlone }},
	{"an item ends a process alone for the second time, for want of memory, and there is a next pool", "it goes to the next pool", NextPool,
		func(e event) bool { return e.item.Memory && e.larger }},
	{"an item ends a process alone for the second time", "it is recorded as failed", Record,
		func(event) bool { return true }},
}

// startsOf is how many starts a fault ends. A process that holds more than its slot has
// will do so again; a full host may have room later.
func startsOf(fault *gpumux.Fault) int {
	switch fault.Kind {
	case gpumux.FaultTimeout, gpumux.FaultBudget, gpumux.FaultDeviceOOM:
		return maxSlowStarts
	}
	return maxStarts
}
