package recovery

import (
	"maps"
	"slices"

	"github.com/gpumux/gpumux"
)

// History is what a chunk remembers of its faults. The zero value has none.
type History struct {
	// Suspects are the items that a process ended with.
	Suspects map[int64]Suspect `json:"suspects,omitempty"`
	// Search is how many of the chunk's items, from its first on, hold the one that ended
	// its process together with others. They run in halves until it is found. 0: none.
	Search int64 `json:"search,omitempty"`
	// Under is how many of them hold those that ran at the same time when a first process
	// ended, for whatever reason.
	Under int64 `json:"under,omitempty"`
	// Starts is how often no process started.
	Starts int `json:"starts,omitempty"`
	// Blameless is how often in a row the worker or its device failed, and Refused how often
	// workers had another edition, and no item finished. Avoid are the devices that may be
	// the cause of the faults since.
	Blameless int      `json:"blameless,omitempty"`
	Refused   int      `json:"refused,omitempty"`
	Avoid     []string `json:"avoid,omitempty"`
}

// Suspect is the deaths of processes that an item may have caused.
type Suspect struct {
	// Alone counts the processes that it ended with no other item in them.
	Alone int `json:"alone"`
	// Tries counts all processes that ended with it.
	Tries int `json:"tries,omitempty"`
	// Memory says that the last one ended for want of memory.
	Memory bool `json:"memory,omitempty"`
	// Wide says that the last fault reached every process of an MPS server. So another item
	// may have caused it, unless this one had the device to itself.
	Wide bool `json:"wide,omitempty"`
}

// NeedsDevice reports whether the item is to run with a whole device to itself.
func (s Suspect) NeedsDevice() bool { return s.Memory && s.Alone > 0 || s.Wide }

func (h *History) Empty() bool {
	return len(h.Suspects) == 0 && h.Search == 0 && h.Starts == 0 && h.Blameless == 0 && h.Refused == 0
}

// Clone shares nothing with h.
func (h *History) Clone() History {
	c := *h
	c.Suspects, c.Avoid = maps.Clone(h.Suspects), slices.Clone(h.Avoid)
	return c
}

// Ran notes that an item ran to its end. It is no suspect any more, nor is the device. An
// item that is not stored runs in each attempt, and so ends no row of faults.
func (h *History) Ran(index int64, stored bool) {
	if h.Avoid = nil; stored {
		h.Blameless, h.Refused, h.Starts = 0, 0, 0
	}
	delete(h.Suspects, index)
}

// Chunk is what the rules ask of a chunk when a call of it has ended with a fault.
type Chunk struct {
	// Open reports whether an item of the call has no result. Index is the first, and
	// Position its position in the chunk.
	Open            bool
	Index, Position int64
	// Under is the position behind those that may have been under way.
	Under  int64
	Larger bool
}

// Decision is the step after a fault. Index is the item that it is about; -1: none.
type Decision struct {
	Step  Step
	Index int64
	Text  string
	// Suspect is what the item has caused, this fault included.
	Suspect Suspect
}

// event is a fault after the history has counted it.
type event struct {
	fault  *gpumux.Fault
	larger bool
	// waits: nobody is to blame, and not too often in a row. starts counts the processes
	// that did not start, of a fault that is one; else 0.
	waits  bool
	starts int
	// open: an item may be to blame. item is the one that is, by now; nil: one of several.
	open      bool
	item      *Suspect
	searching bool
}

// Next counts a fault and decides what follows.
func (h *History) Next(fault *gpumux.Fault, c Chunk) Decision {
	e, index := event{fault: fault, larger: c.Larger, open: c.Open}, int64(-1)
	if fault.Suspect && !slices.Contains(h.Avoid, fault.Device) {
		h.Avoid = append(h.Avoid, fault.Device)
	}
	if fault.Blameless {
		h.Blameless++
		e.waits = h.Blameless < MaxBlameless
	}
	switch {
	case fault.Edition != "":
		h.Refused++
	case fault.Kind == gpumux.FaultBadInput || e.waits:
	case fault.Op == "start":
		h.Starts++
		if e.starts = h.Starts; fault.Again {
			e.starts = max(h.Starts, maxSlowStarts) // perhaps for another chunk
		}
	case c.Open:
		index, e.item = h.died(fault, c)
		e.searching = h.Search > 0
	}
	at := slices.IndexFunc(rules, func(r rule) bool { return r.holds(e) })
	d := Decision{Step: rules[at].Step, Index: index, Text: rules[at].Then}
	if e.item != nil {
		d.Suspect = *e.item
	}
	if d.Step == NextPool {
		delete(h.Suspects, index)
	}
	return d
}

// died counts the death of a process. The suspect is nil while one of several items is to
// blame, and index then the first of them.
func (h *History) died(fault *gpumux.Fault, c Chunk) (index int64, item *Suspect) {
	switch {
	case h.Search == 0 && fault.Concurrent && !fault.Alone:
		// One may have caused it only if it was there when the first one ended, too.
		both := min(c.Under, h.Under)
		if h.Under = c.Under; both > c.Position {
			h.Search, h.Under = both, 0
		}
		return c.Index, nil
	case fault.Batch > 1:
		h.Search = c.Under
		return c.Index, nil
	}
	return c.Index, h.suspect(c.Index, fault)
}

func (h *History) suspect(index int64, fault *gpumux.Fault) *Suspect {
	if h.Suspects == nil {
		h.Suspects = map[int64]Suspect{}
	}
	s := h.Suspects[index]
	s.Memory, s.Wide = fault.Kind.Memory(), fault.Wide
	s.Tries++
	if fault.Alone {
		s.Alone++
	}
	h.Suspects[index] = s
	return &s
}
