package starter

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/store"
)

// pause waits, or returns the cause of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Handle) soFar(ctx context.Context, yield func([]byte, error) bool) {
	tail, err := h.findTail(ctx, true)
	if err == nil && tail == nil {
		err = fmt.Errorf("the results of map %s so far lie in the workers' store, which is out of reach from here; give it, or wait for its end", h.ID)
	}
	if err != nil {
		yield(nil, err)
		return
	}
	tail.Lines(ctx, nil)(yield)
}

func (h *Handle) follow(ctx context.Context, o ReadOptions, yield func([]byte, error) bool) {
	waiting, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	var summary gpumux.Summary
	var failed error
	go func() {
		defer close(over)
		summary, failed = h.Wait(waiting)
	}()
	defer func() { stop(); <-over }()
	var tail *store.Tail
	for ended := false; !ended && tail == nil; {
		var err error
		if tail, err = h.findTail(ctx, o.Unordered); err != nil {
			yield(nil, err)
			return
		}
		if tail != nil {
			break
		}
		select {
		case <-over:
			ended = true
		case <-time.After(agedPoll):
		}
	}
	if tail != nil {
		for line, err := range tail.Lines(ctx, over) {
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
	if failed != nil {
		yield(nil, failed)
		return
	}
	if tail != nil && tail.Count() >= summary.Items {
		return
	}
	// The parts lack those that are gone, or all of a small map whose store is out of reach.
	for line, err := range h.starter.lines(ctx, summary, o.Arrays) {
		if err == nil && tail != nil {
			var outcome results.Outcome
			if outcome, err = results.ParseOutcome(line); err == nil && tail.Gave(outcome.Index) {
				continue
			}
		}
		if !yield(line, err) || err != nil {
			return
		}
	}
}

// findTail finds the run's results in the store. It returns nil while no worker says
// where they are, and for a small map whose store is out of reach: its summary has them.
func (h *Handle) findTail(ctx context.Context, unordered bool) (*store.Tail, error) {
	output := h.Output
	if output == "" {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		p, err := h.Progress(asking)
		if err != nil {
			return nil, nil
		}
		output = p.Output
	}
	st, err := h.starter.UseStore(ctx)
	if err != nil && h.Items >= 0 && h.Items <= gpumux.InlineItems {
		return nil, nil
	}
	var folder *store.Folder
	if err == nil {
		folder, err = st.Folder(contract.PartsOf(output))
	}
	if err != nil {
		return nil, fmt.Errorf("follow map %s: %w", h.ID, err)
	}
	return folder.Tail(unordered), nil
}
