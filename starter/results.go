package starter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"

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
	return linesOf(func(give func([]byte) error) error {
		give = h.starter.plain(give)
		f := &follower{h: h, unordered: o.Unordered || o.SoFar}
		switch {
		case h.run.Status == Completed:
			summary, err := h.Wait(ctx)
			if err != nil {
				return err
			}
			return h.starter.eachStored(ctx, summary, give)
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

// Lines is ResultsOf as lines of JSON, as the results
// file has them. It decodes arrays at most. A line is valid until the next step and ends
// without a newline.
func (s *Starter) Lines(ctx context.Context, summary gpumux.Summary) iter.Seq2[[]byte, error] {
	return linesOf(func(give func([]byte) error) error { return s.eachStored(ctx, summary, s.plain(give)) })
}

func (s *Starter) eachStored(ctx context.Context, summary gpumux.Summary, give func(line []byte) error) error {
	if summary.Output == "" {
		for _, result := range summary.Results {
			line, err := results.Append(nil, result)
			if err == nil {
				err = give(bytes.TrimSuffix(line, []byte{'\n'}))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	st, key, err := s.resultsFile(ctx, summary.Output)
	if err != nil {
		return err
	}
	file, err := st.Objects.Read(ctx, key, 0, -1)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; somebody deleted it, as `gpumux prune` does with old ones: run the map again", err)
	}
	if err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 256<<10), math.MaxInt)
	for lines.Scan() {
		if err := give(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the results %s: %w", summary.Output, err)
	}
	return nil
}

func (s *Starter) plain(give func([]byte) error) func([]byte) error {
	if s.Arrays {
		return give
	}
	return func(line []byte) error {
		line, err := results.Plain(line)
		if err != nil {
			return err
		}
		return give(line)
	}
}

var errEnough = errors.New("enough")

// linesOf yields the lines that a walk gives, and the error that it ends with.
func linesOf(walk func(give func(line []byte) error) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := walk(func(line []byte) error {
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

func (s *Starter) resultsFile(ctx context.Context, output string) (st *store.Store, key string, err error) {
	if st, err = s.store(ctx); err != nil {
		return nil, "", fmt.Errorf("read the results %s: %w", output, err)
	}
	if key, err = st.Objects.Key(output); err != nil {
		return nil, "", fmt.Errorf("read the results: %w", err)
	}
	return st, key, nil
}

// Causes groups the failures of a completed map. When ctx ends before all results were
// read, they are those of the first ones.
func (s *Starter) Causes(ctx context.Context, summary gpumux.Summary) (causes Causes, err error) {
	left := summary.Failed
	if left == 0 {
		return causes, nil
	}
	for result, err := range s.ResultsOf(ctx, summary) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return causes, nil
		}
		if err != nil {
			return causes, err
		}
		causes.Add(result)
		if causes.Count == left {
			break
		}
	}
	return causes, nil
}
