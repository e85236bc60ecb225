package activities

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

const (
	// deadlyAlone is how often an item may end a process that ran nothing else, before the
	// end counts as its own fault.
	deadlyAlone = 2
	// maxSpared is how often in a row a chunk is retried for blameless faults, before one is
	// booked like any other. With Temporal's growing delay that takes about four minutes.
	maxSpared = 30
	// maxRefused is how often in a row workers may refuse a chunk for their edition before
	// one of them looks whether there is a worker that would run it.
	maxRefused = 30
)

// memo goes from one attempt at a chunk to the next one, in its heartbeat.
type memo struct {
	// Suspects are the items that a process ended with.
	Suspects map[int64]suspect `json:"suspects,omitempty"`
	// Written is where this attempt and those before store what finishes. Attempt is the
	// number of this one.
	Written []store.Position `json:"written,omitempty"`
	Attempt int32            `json:"attempt,omitempty"`
	// Hunt is how many of the chunk's items, from its first on, hold the one that ended its
	// process together with others. They are run in halves until it is found. 0 means none.
	Hunt int64 `json:"hunt,omitempty"`
	// Doubt is how many of them hold those that were under way at the same time when a
	// process ended, for whatever reason.
	Doubt int64 `json:"doubt,omitempty"`
	// Escalate are the items that need the next rung.
	Escalate contract.Runs `json:"escalate,omitempty"`
	// Retry are the items that raised and are to be tried after a pause.
	Retry contract.Runs `json:"again,omitempty"`
	// Starts is how often no process started.
	Starts int `json:"starts,omitempty"`
	// Spared is how often in a row the worker or its device failed, and Refused how often
	// workers had another edition, and no item finished. Avoid are the devices that may be
	// to blame for the deaths since.
	Spared  int      `json:"spared,omitempty"`
	Refused int      `json:"refused,omitempty"`
	Avoid   []string `json:"avoid,omitempty"`
	// Edition is the edition of the code that items have run with.
	Edition string `json:"edition,omitempty"`
	// Waiting says why nothing moves, for people who look at the pending activity.
	Waiting string `json:"waiting,omitempty"`
}

// suspect is the deaths that an item may have caused.
type suspect struct {
	// Alone counts the processes that it ended with no other item in them.
	Alone int `json:"alone"`
	// Tries counts all processes that ended with it.
	Tries int `json:"tries,omitempty"`
	// Memory says that the last one ended for want of memory.
	Memory bool `json:"memory,omitempty"`
}

// addWritten adds positions behind which parts may have results of the chunk.
func (m *memo) addWritten(positions []store.Position) {
	for _, p := range positions {
		if !slices.ContainsFunc(m.Written, func(known store.Position) bool { return known.Writer == p.Writer && known.Number <= p.Number }) {
			m.Written = append(m.Written, p)
		}
	}
}

// edition is the one that items of the chunk must run with; empty: any.
func (m *memo) edition(chunk contract.Chunk) string {
	if chunk.Edition == gpumux.AnyEdition {
		return ""
	}
	return cmp.Or(m.Edition, chunk.Edition)
}

// suspect notes the device of a fault that may be the device's.
func (m *memo) suspect(fault *gpumux.Fault) {
	if fault.Suspect && !slices.Contains(m.Avoid, fault.Device) {
		m.Avoid = append(m.Avoid, fault.Device)
	}
}

// accuse counts a death against an item.
func (m *memo) accuse(index int64, fault *gpumux.Fault) suspect {
	s := m.Suspects[index]
	s.Memory = fault.Kind.Memory()
	s.Tries++
	if fault.Alone {
		s.Alone++
	}
	m.Suspects[index] = s
	return s
}

// absolve notes that an item ran, which clears it and its device of suspicion.
func (m *memo) absolve(index int64) {
	m.Spared, m.Refused, m.Avoid = 0, 0, nil
	delete(m.Suspects, index)
}

// hunt decides which of the items that were under way when a process ended are searched,
// half by half: at is the first of them in the chunk, under where they end. It reports
// false where there was one item, which is known.
func (m *memo) hunt(fault *gpumux.Fault, at, under int64) bool {
	switch {
	case m.Hunt == 0 && fault.Concurrent && !fault.Alone && fault.Kind != gpumux.FaultTimeout:
		// Nothing says that an item was guilty, until a second process ends with it.
		if m.Doubt, under = under, min(under, m.Doubt); under > at {
			m.Hunt, m.Doubt = under, 0
		}
	case fault.Batch > 1:
		m.Hunt = under
	default:
		return false
	}
	return true
}

// clone shares nothing with the memo that changes. Waiting says why nothing moves.
func (m *memo) clone(waiting string) memo {
	c := *m
	c.Suspects, c.Escalate, c.Retry = maps.Clone(m.Suspects), slices.Clone(m.Escalate), slices.Clone(m.Retry)
	c.Waiting = waiting
	return c
}
