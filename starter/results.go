package starter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/store"
)

// ResultOptions say which results of a run to read, and in which order.
type ResultOptions struct {
	// SoFar ends with those that an incomplete run has stored by now, in no order. A run
	// that keeps them elsewhere is an error. Default: wait for all.
	SoFar bool
	// Unordered yields each result as soon as it is stored. Default: in input order.
	Unordered bool
}

// Results yields the results of a run, each once and in constant memory: while it goes on
// as they come. Those of a map without a folder in the store come at its end. A run that
// does not complete yields what it left, then its error. A store that cannot be reached
// from here is a *NoStoreError.
func (h *Handle) Results(ctx context.Context, o ResultOptions) iter.Seq2[gpumux.Result, error] {
	return parsed(h.Lines(ctx, o), results.Parse)
}

// Lines is Results as lines of JSON; see Starter.Lines. An empty line says that nothing
// more is there at the moment.
func (h *Handle) Lines(ctx context.Context, o ResultOptions) iter.Seq2[[]byte, error] {
	return linesOf(h.starter.Arrays, func(give func([]byte) error) error {
		f := &follower{h: h, unordered: o.Unordered || o.SoFar}
		switch {
		case h.run.Status == StatusCompleted:
			summary, err := h.Wait(ctx)
			if err != nil {
				return err
			}
			return h.starter.storage().each(ctx, summary, give)
		case o.SoFar:
			return f.soFar(ctx, give)
		}
		return f.run(ctx, give)
	})
}

// ResultsOf yields the results that a summary holds or names.
func (s *Starter) ResultsOf(ctx context.Context, summary gpumux.Summary) iter.Seq2[gpumux.Result, error] {
	return parsed(s.Lines(ctx, summary), results.Parse)
}

// Lines is ResultsOf as lines of JSON, as the results file has them. It decodes arrays at
// most. A line is valid until the next step and ends without a newline.
func (s *Starter) Lines(ctx context.Context, summary gpumux.Summary) iter.Seq2[[]byte, error] {
	return linesOf(s.Arrays, func(give func([]byte) error) error { return s.storage().each(ctx, summary, give) })
}

// StoredIn yields the results that a map has stored so far, as lines, each once and in no
// order; its results file is to be output in the store st. With more it goes on for as
// long as that reports that further results may come.
func (s *Starter) StoredIn(ctx context.Context, st *store.Store, output string, more func() bool) iter.Seq2[[]byte, error] {
	return linesOf(s.Arrays, func(give func([]byte) error) error {
		folder, err := st.Folder(contract.PartsOf(output))
		if err != nil {
			return err
		}
		tail := folder.Tail(store.TailOptions{Unordered: true})
		for {
			goesOn := more != nil && more() // asked before reading, so that the last look sees everything
			if err = eachLine(ctx, tail, give); err != nil || more == nil {
				return err
			}
			if err = give(nil); err != nil || !goesOn {
				return err
			}
			if err = pause(ctx, soonestLook); err != nil {
				return err
			}
		}
	})
}

var errEnough = errors.New("enough")

// linesOf yields the lines that a walk gives, and the error that it ends with. Arrays
// stay as they are stored, or become JSON.
func linesOf(arrays bool, walk func(give func(line []byte) error) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := walk(func(line []byte) (err error) {
			if !arrays {
				if line, err = results.Plain(line); err != nil {
					return err
				}
			}
			if !yield(line, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// parsed reads lines of results. An empty line stands for a pause.
func parsed(lines iter.Seq2[[]byte, error], parse func([]byte) (gpumux.Result, error)) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		for line, err := range lines {
			if err == nil && len(line) == 0 {
				continue
			}
			var result gpumux.Result
			if err == nil {
				result, err = parse(line)
			}
			if !yield(result, err) || err != nil {
				return
			}
		}
	}
}

// ValuesOf names the values of a completed map as a source of items.
func (s *Starter) ValuesOf(ctx context.Context, id string) (source string, err error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return "", err
	}
	if h.Running() {
		return "", &StillRunningError{ID: id}
	}
	summary, err := h.Wait(ctx)
	if err == nil && summary.Output == "" {
		err = fmt.Errorf("map %s has its results in its own history; write their values into a file (`gpumux results %[1]s --values`) "+
			"and map over that", id)
	}
	return gpumux.ValuesOf(summary.Output), err
}

// File opens a file that an item keeps, of the map with a results file.
func (s *Starter) File(ctx context.Context, output string, index int64, name string) (io.ReadCloser, error) {
	st, key, err := s.storage().locate(ctx, output)
	if err != nil {
		return nil, err
	}
	folder, err := st.Folder(contract.PartsOf(key))
	if err != nil {
		return nil, err
	}
	file, err := folder.OpenFile(ctx, index, name)
	if err != nil {
		return nil, fmt.Errorf("fetch the file %s of item %d: %w", name, index, err)
	}
	return file, nil
}

// Causes groups the failures of a completed map. When ctx ends before all results were
// read, they are those of the first ones.
func (s *Starter) Causes(ctx context.Context, summary gpumux.Summary) (causes Causes, err error) {
	if summary.Failed == 0 {
		return causes, nil
	}
	for result, err := range s.ResultsOf(ctx, summary) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return causes, nil
		}
		if err != nil {
			return causes, err
		}
		if causes.Add(result); causes.Count == summary.Failed {
			break
		}
	}
	return causes, nil
}
