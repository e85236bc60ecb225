package items

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/text"
)

// WriteList puts items into a folder as a work list.
func (s *Sources) WriteList(ctx context.Context, folder string, runs contract.Runs) (contract.Work, error) {
	folder, err := s.in.Writable(folder)
	if err != nil {
		return contract.Work{}, err
	}
	r := &RestWriter{s: s, folder: folder, runs: runs}
	defer r.Abort()
	if err := r.spill(ctx); err != nil {
		return contract.Work{}, err
	}
	return r.Finish()
}

// ItemsOf returns the items of a piece of work, by index.
func (s *Sources) ItemsOf(ctx context.Context, work contract.Work) (contract.Runs, error) {
	if work.List == nil {
		return work.Runs, nil
	}
	var runs contract.Runs
	last := int64(-1)
	for item, err := range s.Items(ctx, *work.List, work.Start, work.End) {
		if err != nil {
			return nil, fmt.Errorf("read the work list: %w", err)
		}
		index, err := strconv.ParseInt(string(item), 10, 64)
		if err != nil || index <= last {
			return nil, &gpumux.SourceError{Name: work.List.URL, Problem: "this is no work list", Text: text.Beginning(item), Hint: "give the same command again"}
		}
		last = index
		runs.Add(index)
	}
	return runs, nil
}

// maxRuns is how many runs of items travel; a longer pattern becomes a work list.
const maxRuns = 1000

func (s *Sources) Rest(folder string) *RestWriter { return &RestWriter{s: s, folder: folder} }

// RestWriter takes runs of items in order. It holds few itself, and writes many into a
// work list: a source of indices, one per line.
type RestWriter struct {
	s           *Sources
	folder      string
	runs        contract.Runs
	list        *lineWriter
	source      contract.Source
	file, index *objects.Writer
	number      []byte
}

// Add takes the next run, which may be empty or continue the last.
func (r *RestWriter) Add(ctx context.Context, run contract.Span) error {
	if n := len(r.runs); r.list == nil && n > 0 && r.runs[n-1].End == run.Start {
		r.runs[n-1].End = run.End
		return nil
	}
	if r.list == nil && run.Len() > 0 {
		if r.runs = append(r.runs, run); len(r.runs) <= maxRuns {
			return nil
		}
		return r.spill(ctx)
	}
	for i := run.Start; i < run.End; i++ {
		r.number = strconv.AppendInt(r.number[:0], i, 10)
		if err := r.list.add(r.number); err != nil {
			return err
		}
	}
	return nil
}

func (r *RestWriter) spill(ctx context.Context) (err error) {
	key := r.folder + "/work-" + rand.Text()
	if r.file, err = r.s.in.Create(ctx, key+".jsonl", objects.Creation{}); err != nil {
		return err
	}
	if r.index, err = r.s.in.Create(ctx, key+".index", objects.Creation{}); err != nil {
		return err
	}
	r.source = contract.Source{URL: r.s.in.Locate(key + ".jsonl"), Index: key + ".index"}
	r.list = newLineWriter(r.file, r.index)
	for _, run := range r.runs {
		if err := r.Add(ctx, run); err != nil {
			return err
		}
	}
	return nil
}

func (r *RestWriter) Finish() (contract.Work, error) {
	if r.list == nil {
		return contract.Work{Runs: r.runs}, nil
	}
	if err := errors.Join(r.list.finish(), r.file.Close(), r.index.Close()); err != nil {
		return contract.Work{}, err
	}
	r.source.Items, r.source.Bytes = r.list.marks.items, r.list.at.offset
	return contract.Work{List: &r.source, End: r.source.Items}, nil
}

// Abort drops them. After Finish it does nothing.
func (r *RestWriter) Abort() {
	for _, w := range []*objects.Writer{r.file, r.index} {
		if w != nil {
			w.Abort()
		}
	}
}
