package store

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpumux/gpumux/internal/contract"
)

// listWriter writes a work list: a source whose items are indices, one per line, in order.
type listWriter struct {
	s      *Store
	source contract.Source
	file   *Writer
	index  *Writer
	to     *bufio.Writer
	marks  *indexWriter
	at     position
	number []byte
}

func (s *Store) newList(ctx context.Context, folder string) (*listWriter, error) {
	key := folder + "/work-" + rand.Text()
	l := &listWriter{s: s, source: contract.Source{URL: s.Locate(key + ".jsonl"), Index: key + ".index"}}
	var err error
	if l.file, err = s.Create(ctx, key+".jsonl"); err != nil {
		return nil, err
	}
	if l.index, err = s.Create(ctx, l.source.Index); err != nil {
		l.file.Abort()
		return nil, err
	}
	l.to, l.marks = bufio.NewWriterSize(l.file, 64<<10), newIndexWriter(l.index)
	return l, nil
}

func (l *listWriter) add(run contract.Span) error {
	for i := run.Start; i < run.End; i++ {
		l.marks.mark(l.at)
		l.number = append(strconv.AppendInt(l.number[:0], i, 10), '\n')
		if _, err := l.to.Write(l.number); err != nil {
			return err
		}
		l.source.Items++
		l.at.pass(l.number)
	}
	return nil
}

func (l *listWriter) finish() (contract.Work, error) {
	l.source.Bytes = l.at.offset
	if err := errors.Join(l.to.Flush(), l.marks.finish(l.at)); err != nil {
		return contract.Work{}, err
	}
	if err := errors.Join(l.file.Close(), l.index.Close()); err != nil {
		return contract.Work{}, err
	}
	return contract.Work{List: &l.source, End: l.source.Items}, nil
}

func (l *listWriter) abort() {
	l.file.Abort()
	l.index.Abort()
}

// WriteList puts items into a folder as a work list.
func (s *Store) WriteList(ctx context.Context, folder string, runs contract.Runs) (contract.Work, error) {
	folder, err := s.Key(folder)
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
func (s *Store) ItemsOf(ctx context.Context, work contract.Work) (contract.Runs, error) {
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

// restWriter takes runs of items in order. It holds them itself while they are few, and writes a work list else.
type restWriter struct {
	s      *Store
	folder string
	runs   contract.Runs
	list   *listWriter
}

func (r *restWriter) add(ctx context.Context, run contract.Span) (err error) {
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

func (r *restWriter) finish() (contract.Work, error) {
	if r.list == nil {
		return contract.Work{Runs: r.runs}, nil
	}
	return r.list.finish()
}

func (r *restWriter) abort() {
	if r.list != nil {
		r.list.abort()
	}
	r.list, r.runs = nil, nil
}
