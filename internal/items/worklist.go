package items

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/text"
)

// listWriter writes a work list: a source of indices, one per line, in order.
type listWriter struct {
	*lineWriter
	source      contract.Source
	file, index *objects.Writer
	number      []byte
}

func (s *Sources) newList(ctx context.Context, folder string) (*listWriter, error) {
	key := folder + "/work-" + rand.Text()
	file, err := s.in.Create(ctx, key+".jsonl")
	if err != nil {
		return nil, err
	}
	index, err := s.in.Create(ctx, key+".index")
	if err != nil {
		file.Abort()
		return nil, err
	}
	source := contract.Source{URL: s.in.Locate(key + ".jsonl"), Index: key + ".index"}
	return &listWriter{lineWriter: newLineWriter(file, index), source: source, file: file, index: index}, nil
}

func (l *listWriter) addRun(run contract.Span) error {
	for i := run.Start; i < run.End; i++ {
		l.number = strconv.AppendInt(l.number[:0], i, 10)
		if err := l.add(l.number); err != nil {
			return err
		}
	}
	return nil
}

func (l *listWriter) finish() (contract.Work, error) {
	if err := errors.Join(l.lineWriter.finish(), l.file.Close(), l.index.Close()); err != nil {
		return contract.Work{}, err
	}
	l.source.Items, l.source.Bytes = l.marks.items, l.at.offset
	return contract.Work{List: &l.source, End: l.source.Items}, nil
}

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
			return nil, &SourceError{Name: work.List.URL, Problem: "this is no work list", Text: text.Beginning(item), Hint: "give the same command again"}
		}
		last = index
		runs.Add(index)
	}
	return runs, nil
}

// maxRuns is how many runs of items travel; a longer pattern becomes a work list.
const maxRuns = 1000

// Rest starts a RestWriter for a folder.
func (s *Sources) Rest(folder string) *RestWriter { return &RestWriter{s: s, folder: folder} }

// RestWriter takes runs of items in order. It holds few itself, and writes many into a
// work list.
type RestWriter struct {
	s      *Sources
	folder string
	runs   contract.Runs
	list   *listWriter
}

// Add takes the next run, which may be empty.
func (r *RestWriter) Add(ctx context.Context, run contract.Span) error {
	if run.Len() <= 0 {
		return nil
	}
	if r.list != nil {
		return r.list.addRun(run)
	}
	if r.runs = append(r.runs, run); len(r.runs) <= maxRuns {
		return nil
	}
	return r.spill(ctx)
}

// spill begins a work list with the runs so far.
func (r *RestWriter) spill(ctx context.Context) (err error) {
	if r.list, err = r.s.newList(ctx, r.folder); err != nil {
		return err
	}
	for _, run := range r.runs {
		if err := r.list.addRun(run); err != nil {
			return err
		}
	}
	return nil
}

// Finish returns the items.
func (r *RestWriter) Finish() (contract.Work, error) {
	if r.list == nil {
		return contract.Work{Runs: r.runs}, nil
	}
	return r.list.finish()
}

// Abort drops them. After Finish it does nothing.
func (r *RestWriter) Abort() {
	if r.list != nil {
		r.list.file.Abort()
		r.list.index.Abort()
	}
	r.list, r.runs = nil, nil
}
