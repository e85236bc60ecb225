package starter

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
)

// ReadOptions say which results of a map to read, and how.
type ReadOptions struct {
	// SoFar ends with those that an incomplete run has stored by now, in no order. A run
	// that keeps them elsewhere is an error. Default: wait for all.
	SoFar bool
	// Unordered yields each result as soon as it is stored. Default: in input order.
	Unordered bool
	// Arrays leaves arrays as they are stored, in Result.Arrays; a line with them is no JSON
	// then. Default: JSON.
	Arrays bool
}

// Completed is a handle on the results of a map whose summary is known, such as from a
// workflow of one's own. It has no ID and asks no server.
func (s *Starter) Completed(summary gpumux.Summary) *Handle {
	h := s.handle(&run{MapInfo: MapInfo{Status: StatusCompleted},
		Memo: memo{Task: summary.Task, Items: summary.Items, Output: summary.Output}}, EntryFound)
	h.summary = &summary
	return h
}

// Results yields the results of a run, each once and in constant memory, as they come. A
// run that does not complete yields what it left, then an *EndedError. A store out of
// reach is a *NoStoreError, unless the map's summary has its results.
func (h *Handle) Results(ctx context.Context, o ReadOptions) iter.Seq2[gpumux.Result, error] {
	parse := results.Parse
	if o.Arrays {
		parse = results.ParseStored
	}
	return func(yield func(gpumux.Result, error) bool) {
		h.read(ctx, o, func(line []byte, err error) bool {
			var result gpumux.Result
			if err == nil && len(line) == 0 {
				return true
			}
			if err == nil {
				result, err = parse(line)
			}
			return yield(result, err) && err == nil
		})
	}
}

// Lines is Results as lines of JSON, as in the results file, without newlines, each valid
// until the next step. An empty one says that nothing more is there at the moment.
func (h *Handle) Lines(ctx context.Context, o ReadOptions) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		h.read(ctx, o, func(line []byte, err error) bool {
			if err == nil && !o.Arrays {
				line, err = results.Plain(line)
			}
			return yield(line, err) && err == nil
		})
	}
}

func (h *Handle) read(ctx context.Context, o ReadOptions, yield func(line []byte, err error) bool) {
	switch {
	case h.run.Status == StatusCompleted:
		summary, err := h.Wait(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		h.starter.lines(ctx, summary, o.Arrays)(yield)
	case o.SoFar:
		h.soFar(ctx, yield)
	default:
		h.follow(ctx, o, yield)
	}
}

// File opens a file that an item keeps beside the results file Output.
func (h *Handle) File(ctx context.Context, index int64, name string) (io.ReadCloser, error) {
	st, key, err := h.starter.locate(ctx, h.Output)
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
