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
)

// listWriter writes a work list: a source whose items are indices, one per line, in order.
type listWriter struct {
	source contract.Source
	file   *objects.Writer
	to     *bufio.Writer
	index  *LineIndex
	number []byte
}

func (s *Sources) newList(ctx context.Context, folder string) (l *listWriter, err error) {
	key := folder + "/work-" + rand.Text()
	l = &listWriter{source: contract.Source{URL: s.in.Locate(key + ".jsonl"), Index: key + ".index"}}
	if l.file, err = s.in.Create(ctx, key+".jsonl"); err != nil {
		return nil, err
	}
	if l.index, err = s.IndexLines(ctx, l.source.Index); err != nil {
		l.file.Abort()
		return nil, err
	}
	l.to = bufio.NewWriterSize(l.file, 64<<10)
	return l, nil
}

func (l *listWriter) add(run contract.Span) error {
	for i := run.Start; i < run.End; i++ {
		l.number = append(strconv.AppendInt(l.number[:0], i, 10), '\n')
		l.index.Add(l.number)
		if _, err := l.to.Write(l.number); err != nil {
			return err
		}
		l.source.Items++
		l.source.Bytes += int64(len(l.number))
	}
	return nil
}

func (l *listWriter) finish() (contract.Work, error) {
	if err := errors.Join(l.to.Flush(), l.file.Close(), l.index.Close()); err != nil {
		return contract.Work{}, err
	}
	return contract.Work{List: &l.source, End: l.source.Items}, nil
}

func (l *listWriter) abort() {
	l.file.Abort()
	l.index.Abort()
}

// WriteList puts items into a folder as a work list.
func (s *Sources) WriteList(ctx context.Context, folder string, runs contract.Runs) (contract.Work, error) {
	folder, err := s.in.Writable(folder)
	if err != nil {
		return contract.Work{}, err
	}
	l, err := s.newList(ctx, folder)
	if err != nil {
		return contract.Work{}, err
	}
	defer l.abort()
	for _, run := range runs {
		if err := l.add(run); err != nil {
			return contract.Work{}, err
		}
	}
	return l.finish()
}

// ItemsOf returns the items of a piece of work, by index.
func (s *Sources) ItemsOf(ctx context.Context, work contract.Work) (contract.Runs, error) {
	if work.List == nil {
		return work.Runs, nil
	}
	var runs contract.Runs
	last := int64(-1)
	for text, err := range s.Items(ctx, *work.List, work.Start, work.End) {
		if err != nil {
			return nil, fmt.Errorf("read the work list: %w", err)
		}
		index, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || index <= last {
			return nil, &SourceError{Name: work.List.URL, Problem: "this is no work list", Text: excerpt(text), Hint: "give the same command again"}
		}
		last = index
		runs.Add(index)
	}
	return runs, nil
}

// mostRuns is how many runs of items travel; a longer pattern becomes a work list.
const mostRuns = 1000

// Rest starts a RestWriter for a folder.
func (s *Sources) Rest(folder string) *RestWriter { return &RestWriter{s: s, folder: folder} }

// RestWriter takes runs of items in order. It holds them itself while they are few, and writes
// a work list else.
type RestWriter struct {
	s      *Sources
	folder string
	runs   contract.Runs
	list   *listWriter
}

// Add takes the next run, which may be empty.
func (r *RestWriter) Add(ctx context.Context, run contract.Span) (err error) {
	if run.Len() <= 0 {
		return nil
	}
	if r.list != nil {
		return r.list.add(run)
	}
	if r.runs = append(r.runs, run); len(r.runs) <= mostRuns {
		return nil
	}
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
		r.list.abort()
	}
	r.list, r.runs = nil, nil
}
