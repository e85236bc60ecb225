package starter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/starter/cause"
	"github.com/gpumux/gpumux/store"
)

// Results waits for the run to end and yields its results in input order, in constant memory. A run that did not complete
// yields its error once.
func (h *Handle) Results(ctx context.Context) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		summary, err := h.Wait(ctx)
		if err != nil {
			yield(gpumux.Result{}, err)
			return
		}
		h.starter.ResultsOf(ctx, summary)(yield)
	}
}

// ResultsOf yields the results that a summary holds or names. A store that cannot be reached from here is a *NoStore.
func (s *Starter) ResultsOf(ctx context.Context, summary gpumux.Summary) iter.Seq2[gpumux.Result, error] {
	return s.resultsOf(ctx, summary, (*store.Store).Results)
}

// resultsOf is ResultsOf with a way to read the file.
func (s *Starter) resultsOf(
	ctx context.Context, summary gpumux.Summary, read func(*store.Store, context.Context, string) iter.Seq2[gpumux.Result, error],
) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		if summary.Output == "" {
			for _, result := range summary.Results {
				if !yield(result, nil) {
					return
				}
			}
			return
		}
		st, key, err := s.resultsFile(ctx, summary.Output)
		if err != nil {
			yield(gpumux.Result{}, err)
			return
		}
		read(st, ctx, key)(func(r gpumux.Result, err error) bool { return yield(r, deleted(err)) })
	}
}

// deleted is the error of reading results, which says what to do when they are gone.
func deleted(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; somebody deleted it, as `gpumux prune` does with old ones: run the map again", err)
	}
	return err
}

// Lines yields the results as lines of JSON, as the results file has them and without decoding more than arrays. A line is valid until the
// next step and ends without a newline.
func (s *Starter) Lines(ctx context.Context, summary gpumux.Summary) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if summary.Output == "" {
			var line bytes.Buffer
			to := json.NewEncoder(&line)
			to.SetEscapeHTML(false)
			for _, result := range summary.Results {
				line.Reset()
				if err := to.Encode(result); err != nil {
					yield(nil, fmt.Errorf("write result %d: %w", result.Index, err))
					return
				}
				if !yield(bytes.TrimSuffix(line.Bytes(), []byte{'\n'}), nil) {
					return
				}
			}
			return
		}
		st, key, err := s.resultsFile(ctx, summary.Output)
		if err != nil {
			yield(nil, err)
			return
		}
		file, err := st.Objects.Read(ctx, key, 0, -1)
		if err != nil {
			yield(nil, fmt.Errorf("read the results: %w", deleted(err)))
			return
		}
		defer file.Close()
		for line, err := range results.Lines(file) {
			if err != nil {
				yield(nil, fmt.Errorf("read the results %s: %w", summary.Output, err))
				return
			}
			shown, err := s.shown(bytes.TrimSuffix(line, []byte{'\n'}))
			if !yield(shown, err) || err != nil {
				return
			}
		}
	}
}

// ValuesOf is the source whose items are the values of a completed map. A map that did not complete is an error.
func (s *Starter) ValuesOf(ctx context.Context, id string) (source string, err error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return "", err
	}
	if h.Running() {
		return "", &StillRunning{ID: id}
	}
	summary, err := h.Wait(ctx)
	if err == nil && summary.Output == "" {
		err = fmt.Errorf("map %s has its results in its own history; write them with `gpumux results %[1]s --values --out FILE`, and "+
			"map over the file", id)
	}
	return gpumux.ValuesOf(summary.Output), err
}

// File opens a file that an item keeps, of the map with a results file.
func (s *Starter) File(ctx context.Context, output string, index int64, name string) (io.ReadCloser, error) {
	st, key, err := s.resultsFile(ctx, output)
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

// resultsFile is where a results file lies.
func (s *Starter) resultsFile(ctx context.Context, output string) (st *store.Store, key string, err error) {
	if st, err = s.store(ctx); err != nil {
		return nil, "", fmt.Errorf("read the results %s: %w", output, err)
	}
	if key, err = st.Objects.Key(output); err != nil {
		return nil, "", fmt.Errorf("read the results: %w", err)
	}
	return st, key, nil
}

// Causes groups the failures of a completed map. When ctx ends before all results were read, they are of the first ones, and whole is
// false.
func (s *Starter) Causes(ctx context.Context, summary gpumux.Summary) (causes cause.Groups, whole bool, err error) {
	if summary.Failed == 0 {
		return causes, true, nil
	}
	left := summary.Failed
	for result, err := range s.ResultsOf(ctx, summary) {
		switch {
		case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return causes, false, nil
		case err != nil:
			return causes, false, err
		}
		if result.Fault == nil {
			continue
		}
		causes.Add(result)
		if left--; left == 0 {
			break
		}
	}
	return causes, true, nil
}
