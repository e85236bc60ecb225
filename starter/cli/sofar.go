package cli

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/local"
)

// sofar is what a map has come to so far, on a server or in what a command with --local left on this machine.
type sofar struct {
	id, status string
	// items is how many it has, -1 where that is not known.
	items int64
	lines iter.Seq2[[]byte, error]
	// follow are the lines, and those that come until the map ends, in any order.
	follow iter.Seq2[[]byte, error]
	// file opens a file that an item of a map of this machine keeps.
	file func(ctx context.Context, index int64, name string) (io.ReadCloser, error)
	// whole says that every item has a result.
	whole bool
	// handle and conn are nil for a map of this machine; summary is of a map that has completed, failed why it did not.
	handle  *starter.Handle
	conn    *app.Connection
	summary *gpumux.Summary
	failed  error
	close   func()
}

// running reports whether more results may come.
func (s *sofar) running() bool { return s.status == string(starter.Running) }

// stateHere is what a command with --local left of a map, unless a server is named.
func (a *program) stateHere(id string) (state local.State, here bool) {
	if a.Address != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

// soFarHere is what a local map has come to, whose server need not run.
func (a *program) soFarHere(ctx context.Context, state local.State) (*sofar, error) {
	_, keys, err := a.ReadKeys()
	if err != nil {
		return nil, err
	}
	st, err := state.Store(ctx, keys)
	if err != nil {
		return nil, err
	}
	found := &sofar{id: state.ID, status: state.State, items: -1, close: func() { _ = st.Close() }}
	from := &starter.Starter{Store: st, Arrays: true}
	found.file = filesOf(from, state.Output)
	if found.whole, err = st.Objects.Exists(ctx, state.Output); err == nil && found.whole {
		found.lines = from.Lines(ctx, gpumux.Summary{Output: state.Output})
		found.follow = found.lines
		return found, nil
	}
	found.lines = from.StoredIn(ctx, st, state.Output)
	found.follow = from.FollowIn(ctx, st, state.Output, func() bool {
		now, err := local.StateOf(state.ID)
		return err == nil && now.State == string(starter.Running)
	})
	return found, nil
}

// soFar finds a map and what it has come to.
func (a *program) soFar(ctx context.Context, id string) (*sofar, error) {
	if state, here := a.stateHere(id); here {
		return a.soFarHere(ctx, state)
	}
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return nil, err
	}
	h, err := conn.Open(ctx, id)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &sofar{id: h.ID, status: string(starter.Running), items: h.Items, lines: h.Stored(ctx), handle: h, conn: conn, close: conn.Close}
	s.follow = h.FollowLines(ctx, starter.FollowOptions{Unordered: true})
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	switch {
	case err == nil:
		s.status, s.items, s.whole, s.summary, s.lines = string(starter.Completed), summary.Items, true, &summary, conn.Lines(ctx, summary)
		s.follow = s.lines
	case errors.As(err, new(*starter.Canceled)):
		s.status = string(starter.StatusCanceled)
	case errors.As(err, new(*starter.Terminated)):
		s.status = string(starter.StatusEnded)
	case errors.As(err, new(*starter.MapFailed)):
		s.status, s.failed = string(starter.Failed), err
	default:
		conn.Close()
		return nil, err
	}
	return s, nil
}
