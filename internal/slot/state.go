package slot

import "time"

type State string

const (
	// Vacant: no process yet, or none any more.
	Vacant State = "vacant"
	// Starting: the process starts and imports the task.
	Starting State = "starting"
	// Ready: the process waits for items.
	Ready State = "ready"
	// Busy: items run.
	Busy State = "busy"
	// Poisoned: the process lives but must not run another item.
	Poisoned State = "poisoned"
	// Reclaiming: the process group is ended, and its memory awaited back.
	Reclaiming State = "reclaiming"
	// Backoff: the last start failed; the next one waits.
	Backoff State = "backoff"
	// Stopped: the slot takes no more calls.
	Stopped State = "stopped"
)

// next lists every allowed move. Others are impossible: a poisoned process never becomes
// ready again, and nothing leaves stopped.
var next = map[State][]State{
	Vacant:     {Starting, Backoff, Stopped},
	Starting:   {Ready, Busy, Reclaiming},
	Ready:      {Busy, Reclaiming},
	Busy:       {Ready, Poisoned, Reclaiming},
	Poisoned:   {Reclaiming},
	Reclaiming: {Vacant},
	Backoff:    {Vacant},
	Stopped:    {},
}

// States are all states in the order in which a process passes them.
func States() []State {
	return []State{Vacant, Starting, Ready, Busy, Poisoned, Reclaiming, Backoff, Stopped}
}

// Recycles are the reasons for which a process is recycled.
func Recycles() []string { return []string{forItems, forFull} }

// Stats count the work of a slot since it began.
type Stats struct {
	// Processes were started; Items were finished in them, commands included.
	Processes, Items int64
	// Held is the memory of the process and its descendants, in bytes; 0 means unknown.
	Held int64
	// Recycled counts processes replaced although they could go on, by reason.
	Recycled map[string]int64
	// Running is the item that runs; nil where none does.
	Running *Running
	// Starting is the start of a process under way; nil where there is none.
	Starting *Start
}

// Start is the start of a task's process, until it has imported the task.
type Start struct {
	Task  string
	Began time.Time
}

// Running is an item that runs, or of several the one that was sent first.
type Running struct {
	Map   string
	Index int64
	Began time.Time
	// Progress is the beginning of the JSON that it, or else its process, reported last.
	Progress string
}
