package starter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/store"
)

// FollowOptions adjust Follow.
type FollowOptions struct {
	// Unordered yields each result as soon as it is stored. Default: in input order, each as soon as all before it are there.
	Unordered bool
}

// Pauses between two looks for new results: a young map gives some soon, and looking costs at most a tenth of the time.
const (
	soonestLook = 250 * time.Millisecond
	latestLook  = 2 * time.Second
	lookShare   = 10
)

// Follow yields the results of a run while it goes on, each once, and ends with the run. It takes constant memory. Results of
// a map without a folder in the store come at its end. A run that does not complete yields what it left, then its error.
func (h *Handle) Follow(ctx context.Context, o FollowOptions) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		for line, err := range h.FollowLines(ctx, o) {
			if err == nil && len(line) == 0 {
				continue
			}
			var result gpumux.Result
			if err == nil {
				result, err = results.Parse(line)
			}
			if !yield(result, err) || err != nil {
				return
			}
		}
	}
}

// FollowLines is Follow with the results as lines of JSON, without decoding more than arrays. A line is valid until the next step and ends
// without a newline. An empty line says that nothing more is there at the moment.
func (h *Handle) FollowLines(ctx context.Context, o FollowOptions) iter.Seq2[[]byte, error] {
	return h.starter.linesOf(func(give func([]byte) error) error {
		return (&follower{h: h, o: o}).run(ctx, give)
	})
}

// Stored yields the results that a run has stored so far, as lines like those of FollowLines, each once and in no order. It is for
// runs that do not complete; one that keeps its results elsewhere is an error.
func (h *Handle) Stored(ctx context.Context) iter.Seq2[[]byte, error] {
	return h.starter.linesOf(func(give func([]byte) error) error {
		f := &follower{h: h, o: FollowOptions{Unordered: true}}
		if err := f.findTail(ctx); err != nil {
			return err
		}
		if f.tail == nil {
			return fmt.Errorf("map %s keeps its results in its own history until it ends, so there are none of it in the store", h.ID)
		}
		return eachLine(ctx, f.tail, give)
	})
}

// StoredIn is Stored of a map whose results file is, or is to be, output in the store st.
func (s *Starter) StoredIn(ctx context.Context, st *store.Store, output string) iter.Seq2[[]byte, error] {
	return s.linesOf(func(give func([]byte) error) error {
		folder, err := st.Folder(contract.PartsOf(output))
		if err != nil {
			return err
		}
		tail := folder.Tail(store.TailOptions{Unordered: true})
		return eachLine(ctx, tail, give)
	})
}

// FollowIn is StoredIn that goes on as long as more says that further results may come. An empty line says that nothing more is there at the
// moment.
func (s *Starter) FollowIn(ctx context.Context, st *store.Store, output string, more func() bool) iter.Seq2[[]byte, error] {
	return s.linesOf(func(give func([]byte) error) error {
		folder, err := st.Folder(contract.PartsOf(output))
		if err != nil {
			return err
		}
		tail := folder.Tail(store.TailOptions{Unordered: true})
		for goesOn := true; goesOn && err == nil; {
			goesOn = more() // asked before reading, so that the last look sees everything
			if err = eachLine(ctx, tail, give); err == nil {
				err = give(nil)
			}
			if err != nil || !goesOn {
				break
			}
			select {
			case <-time.After(soonestLook):
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return err
	})
}

// linesOf yields the lines that a walk gives, and the error that it ends with.
func (s *Starter) linesOf(walk func(give func(line []byte) error) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := walk(func(line []byte) error {
			line, err := s.shown(line)
			if err == nil && !yield(line, nil) {
				err = errEnough
			}
			return err
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// shown is a stored line as callers take it.
func (s *Starter) shown(line []byte) ([]byte, error) {
	if s.Arrays {
		return line, nil
	}
	return results.Plain(line)
}

// eachLine gives the lines of a tail without their ends.
func eachLine(ctx context.Context, tail *store.Tail, give func([]byte) error) error {
	return tail.Each(ctx, func(line []byte) error { return give(bytes.TrimSuffix(line, []byte{'\n'})) })
}

// errEnough ends a walk whose taker wants no more.
var errEnough = errors.New("enough")

// follower is one walk over the results of a run.
type follower struct {
	h    *Handle
	o    FollowOptions
	tail *store.Tail
	// failing is since when the store could not be read.
	failing time.Time
}

func (f *follower) run(ctx context.Context, give func(line []byte) error) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var summary gpumux.Summary
	var failed error
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
		if err := f.look(ctx, ended, give); err != nil {
			return err
		}
		if ended {
			break
		}
		select {
		case <-over:
		case <-time.After(min(latestLook, max(soonestLook, lookShare*time.Since(began)))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if failed != nil {
		return failed
	}
	return f.rest(ctx, summary, give)
}

// look gives what is new in the store. What the store cannot tell now it may tell later, or the results file in the end.
func (f *follower) look(ctx context.Context, last bool, give func(line []byte) error) error {
	if f.tail == nil {
		if err := f.findTail(ctx); err != nil || f.tail == nil {
			return err
		}
	}
	gave := false
	err := eachLine(ctx, f.tail, func(line []byte) error {
		gave = true
		return give(line)
	})
	switch {
	case err == nil:
		f.failing = time.Time{}
		if gave {
			return give(nil)
		}
	case errors.Is(err, errEnough):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case f.failing.IsZero():
		f.failing = time.Now()
	case !last && time.Since(f.failing) > outage:
		return fmt.Errorf("follow map %s: %w; it goes on, come back with `gpumux results %s --follow`", f.h.ID, err, f.h.ID)
	}
	return nil
}

// findTail finds the folder of the run's results. A run that keeps them elsewhere, or that nobody can answer for, has none yet.
func (f *follower) findTail(ctx context.Context) error {
	output := f.h.run.Memo.Output
	known := output != ""
	if !known {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		p, err := f.h.Progress(asking)
		if err != nil {
			return nil
		}
		output = p.Output
	}
	st, err := f.h.starter.store(ctx)
	if err != nil {
		if known {
			return fmt.Errorf("follow map %s: %w", f.h.ID, err)
		}
		return nil
	}
	folder, err := st.Folder(contract.PartsOf(output))
	if err != nil {
		return fmt.Errorf("follow map %s: %w", f.h.ID, err)
	}
	f.tail = folder.Tail(store.TailOptions{Unordered: f.o.Unordered})
	return nil
}

// rest gives what the parts did not tell: all results of a small map, or those whose parts are gone already.
func (f *follower) rest(ctx context.Context, summary gpumux.Summary, give func(line []byte) error) error {
	if f.tail != nil && f.tail.Count() >= summary.Items {
		return nil
	}
	for line, err := range f.h.starter.Lines(ctx, summary) {
		if err != nil {
			return err
		}
		if f.tail != nil && f.tail.Count() > 0 {
			index, err := results.IndexOf(line)
			if err != nil {
				return err
			}
			if f.tail.Gave(index) {
				continue
			}
		}
		if err := give(line); err != nil {
			return err
		}
	}
	return nil
}
