package starter

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/store"
)

// Looking for new results takes at most a quarter of the time; the caller's use of them
// does not count.
const (
	soonestLook = 250 * time.Millisecond
	latestLook  = 2 * time.Second
	lookShare   = 4
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

// follower reads the results of a run that has not completed.
type follower struct {
	h         *Handle
	unordered bool
	arrays    bool
	tail      *store.Tail
}

// soFar gives the results stored by now.
func (f *follower) soFar(ctx context.Context, give func(line []byte) error) error {
	if err := f.findTail(ctx); err != nil {
		return err
	}
	if f.tail == nil {
		return fmt.Errorf("the results of map %s so far lie in the workers' store, which is out of reach from here; give it, or wait for its end", f.h.ID)
	}
	for line, err := range f.tail.Lines(ctx) {
		if err == nil {
			err = give(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) run(ctx context.Context, give func(line []byte) error) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var summary gpumux.Summary
	var failed error
	var given time.Duration // spent by the caller
	asked := func(line []byte) error {
		began := time.Now()
		defer func() { given += time.Since(began) }()
		return give(line)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		summary, failed = f.h.Wait(waiting)
	}()
	defer func() { stop(); <-over }()
	for ended := false; !ended; {
		select {
		case <-over:
			ended = true // looked at before reading, so that the last look sees everything
		default:
		}
		began := time.Now()
		given = 0
		if err := f.look(ctx, asked); err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-over:
		case <-time.After(min(latestLook, max(soonestLook, lookShare*(time.Since(began)-given)))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if failed != nil {
		return failed
	}
	return f.rest(ctx, summary, give)
}

// look gives what is new in the store. An error of the store may pass.
func (f *follower) look(ctx context.Context, give func(line []byte) error) error {
	if f.tail == nil {
		if err := f.findTail(ctx); err != nil || f.tail == nil {
			return err
		}
	}
	gave := false
	for line, err := range f.tail.Lines(ctx) {
		if err != nil {
			return context.Cause(ctx)
		}
		if err := give(line); err != nil {
			return err
		}
		gave = true
	}
	if gave {
		return give(nil)
	}
	return nil
}

// findTail finds the run's results, if it keeps them in the store.
func (f *follower) findTail(ctx context.Context) error {
	output := f.h.Output
	if output == "" {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		p, err := f.h.Progress(asking)
		if err != nil {
			return nil
		}
		output = p.Output
	}
	st, err := f.h.starter.openStore(ctx)
	if err != nil && f.h.Items >= 0 && f.h.Items <= gpumux.InlineItems {
		return nil // its summary has them, unless they are large
	}
	var folder *store.Folder
	if err == nil {
		folder, err = st.Folder(contract.PartsOf(output))
	}
	if err != nil {
		return fmt.Errorf("follow map %s: %w", f.h.ID, err)
	}
	f.tail = folder.Tail(store.TailOptions{Unordered: f.unordered})
	return nil
}

// rest gives what the parts lack: those whose parts are gone, or all of a small map whose
// store is out of reach.
func (f *follower) rest(ctx context.Context, summary gpumux.Summary, give func(line []byte) error) error {
	if f.tail != nil && f.tail.Count() >= summary.Items {
		return nil
	}
	return f.h.starter.eachLine(ctx, summary, f.arrays, func(line []byte) error {
		if f.tail != nil && f.tail.Count() > 0 {
			if index, err := results.IndexOf(line); err != nil || f.tail.Gave(index) {
				return err
			}
		}
		return give(line)
	})
}
