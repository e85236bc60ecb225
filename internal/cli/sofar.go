package cli

import (
	"context"
	"errors"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
)

// sofar has the results of a map so far, from a server or from this machine.
type sofar struct {
	id, status string
	// items counts the map's items; -1 if unknown.
	items int64
	// lines are its results. Of a map on a server that is followed they go on until it ends.
	lines iter.Seq2[[]byte, error]
	// results has the files that items keep.
	results *starter.Handle
	// whole says that every item has a result.
	whole bool
	// handle is nil for a map of this machine. On a server, ended says why a map did not
	// complete.
	handle *starter.Handle
	ended  *starter.EndedError
	close  func()
}

func (s *sofar) running() bool { return s.status == string(starter.StatusRunning) }

// stateHere finds the state that a command with --local left, unless --address names a
// server.
func stateHere(a *app, id string) (state local.State, here bool) {
	if a.address != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

func soFarHere(ctx context.Context, a *app, state local.State, o starter.ReadOptions) (*sofar, error) {
	keys, err := a.readKeys()
	if err != nil {
		return nil, err
	}
	st, err := state.Store(ctx, keys)
	if err != nil {
		return nil, err
	}
	reader := &starter.Starter{Store: state.StoreURL(), Keys: keys}
	s := &sofar{id: state.ID, status: state.State, items: -1, close: func() { reader.Close(); _ = st.Close() }}
	s.results = reader.Completed(gpumux.Summary{Output: state.Output})
	if s.whole, err = st.Objects.Exists(ctx, state.Output); err == nil && s.whole {
		s.lines = s.results.Lines(ctx, o)
	} else {
		s.lines = state.Lines(ctx, st)
	}
	return s, nil
}

// soFar finds a map. Its lines follow it to its end unless o says SoFar.
func soFar(ctx context.Context, a *app, id string, o starter.ReadOptions) (*sofar, error) {
	o.Arrays = true // what writes them reads them
	if state, here := stateHere(a, id); here {
		return soFarHere(ctx, a, state, o)
	}
	conn, err := a.connectWithStore(ctx)
	if err != nil {
		return nil, err
	}
	s, err := soFarThere(ctx, conn, id, o)
	if err != nil {
		conn.close()
	}
	return s, err
}

func soFarThere(ctx context.Context, conn *connection, id string, o starter.ReadOptions) (*sofar, error) {
	h, err := conn.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &sofar{id: h.ID, status: string(starter.StatusRunning), items: h.Items, lines: h.Lines(ctx, o), handle: h, results: h, close: conn.close}
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	switch {
	case err == nil:
		s.status, s.items, s.whole = string(starter.StatusCompleted), summary.Items, true
		s.results = conn.Completed(summary)
		s.lines = s.results.Lines(ctx, o)
	case errors.As(err, &s.ended):
		s.status = string(s.ended.Status)
	default:
		return nil, err
	}
	return s, nil
}
