package activities

import (
	"cmp"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

// memo goes from one attempt at a chunk to the next one, in its heartbeat.
type memo struct {
	recovery.History
	// Written is where this attempt and those before store what finishes. Attempt is the
	// number of this one.
	Written []store.Position `json:"written,omitempty"`
	Attempt int32            `json:"attempt,omitempty"`
	// Escalate are the items that need the next rung.
	Escalate contract.Runs `json:"escalate,omitempty"`
	Retry    contract.Runs `json:"retry,omitempty"`
	Edition  string        `json:"edition,omitempty"`
	// Waiting says why nothing moves, for people who look at the pending activity.
	Waiting string `json:"waiting,omitempty"`
	// Finished counts the items of the chunk that have been through the map.
	Finished int64 `json:"finished,omitempty"`
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

// clone shares nothing with the memo that changes. Waiting says why nothing moves.
func (m *memo) clone(waiting string) memo {
	c := *m
	c.History, c.Escalate, c.Retry = m.History.Clone(), slices.Clone(m.Escalate), slices.Clone(m.Retry)
	c.Waiting = waiting
	return c
}
