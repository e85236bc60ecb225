package cli

import (
	"context"
	"errors"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
)

// sofar has the results of a map so far, from a server or from this machine.
type sofar struct {
	id, status string
	// items counts the map's items; -1 if unknown.
	items int64
	// lines are its results. Of a map that is followed, also those that come until it ends.
	lines iter.Seq2[[]byte, error]
	// from has the files that items keep, beside the results file output.
	from   *starter.Starter
	output string
	// whole says that every item has a result.
	whole bool
	// handle is nil for a map of this machine. On a server, summary is of a map that
	// completed, and ended says why one did not.
	handle  *starter.Handle
	summary *gpumux.Summary
	ended   *starter.EndedError
	close   func()
}

func (s *sofar) running() bool { return s.status == string(starter.StatusRunning) }

// stateHere finds the state that a command with --local left, unless --address names a
// server.
func stateHere(a *app.App, id string) (state local.State, here bool) {
	if a.Address != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

func soFarHere(ctx context.Context, a *app.App, state local.State, follow *starter.ResultOptions) (*sofar, error) {
	_, keys, err := a.ReadKeys()
	if err != nil {
		return nil, err
	}
	st, err := state.Store(ctx, keys)
	if err != nil {
		return nil, err
	}
	from := &starter.Starter{Store: st, Arrays: true}
	s := &sofar{id: state.ID, status: state.State, items: -1, from: from, output: state.Output, close: func() { _ = st.Close() }}
	if s.whole, err = st.Objects.Exists(ctx, state.Output); err == nil && s.whole {
		s.lines = from.Lines(ctx, gpumux.Summary{Output: state.Output})
		return s, nil
	}
	var more func() bool
	if follow != nil {
		more = func() bool {
			now, err := local.StateOf(state.ID)
			return err == nil && now.State == string(starter.StatusRunning)
		}
	}
	s.lines = from.StoredIn(ctx, st, state.Output, more)
	return s, nil
}

// soFar finds a map. Its lines follow it where follow is not nil.
func soFar(ctx context.Context, a *app.App, id string, follow *starter.ResultOptions) (*sofar, error) {
	if state, here := stateHere(a, id); here {
		return soFarHere(ctx, a, state, follow)
	}
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return nil, err
	}
	s, err := soFarThere(ctx, conn, id, follow)
	if err != nil {
		conn.Close()
	}
	return s, err
}

func soFarThere(ctx context.Context, conn *app.Connection, id string, follow *starter.ResultOptions) (*sofar, error) {
	h, err := conn.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &sofar{id: h.ID, status: string(starter.StatusRunning), items: h.Items, lines: h.Lines(ctx, starter.ResultOptions{SoFar: true}), handle: h, close: conn.Close,
		from: conn.Starter, output: h.Output}
	if follow != nil {
		s.lines = h.Lines(ctx, *follow)
	}
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	switch {
	case err == nil:
		s.status, s.items, s.whole, s.summary = string(starter.StatusCompleted), summary.Items, true, &summary
		s.lines, s.output = conn.Lines(ctx, summary), summary.Output
	case errors.As(err, &s.ended):
		s.status = string(s.ended.Status)
	default:
		return nil, err
	}
	return s, nil
}
