package items

import (
	"bufio"
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
	source       contract.Source
	lines, index *objects.Writer
	to           *bufio.Writer
	marks        *indexWriter
	at           position
	number       []byte
}

func (s *Sources) newList(ctx context.Context, folder string) (*listWriter, error) {
	key := folder + "/work-" + rand.Text()
	lines, err := s.in.Create(ctx, key+".jsonl")
	if err != nil {
		return nil, err
	}
	index, err := s.in.Create(ctx, key+".index")
	if err != nil {
		lines.Abort()
		return nil, err
	}
	source := contract.Source{URL: s.in.Locate(key + ".jsonl"), Index: key + ".index"}
	return &listWriter{source: source, lines: lines, index: index, to: bufio.NewWriterSize(lines, 64<<10),
		marks: newIndexWriter(index)}, nil
}

func (l *listWriter) add(run contract.Span) error {
	for i := run.Start; i < run.End; i++ {
		l.number = append(strconv.AppendInt(l.number[:0], i, 10), '\n')
		l.marks.mark(l.at)
		l.at.pass(l.number)
		if _, err := l.to.Write(l.number); err != nil {
			return err
		}
	}
	return nil
}

func (l *listWriter) finish() (contract.Work, error) {
	l.source.Items, l.source.Bytes = l.marks.items, l.at.offset
	if err := errors.Join(l.to.Flush(), l.lines.Close(), l.marks.finish(l.at), l.index.Close()); err != nil {
		return contract.Work{}, err
	}
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

// RestWriter takes runs of items in order. It holds them itself while they are few, and
// writes a work list else.
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
		return r.list.add(run)
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
		if err := r.list.add(run); err != nil {
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
		r.list.lines.Abort()
		r.list.index.Abort()
	}
	r.list, r.runs = nil, nil
}
