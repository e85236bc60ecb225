package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
)

// beatItems is how many items pass between two calls of a merge's beat.
const beatItems = 1 << 14

// Merge writes the results of all parts of a folder into one file in order of index and counts them. Parts may overlap and
// fill each other's holes; of several results for an item that of the part whose name comes first stays. Every index from 0
// to Items-1 must be there, else the error names the first that is not and the output is as it was. The output appears whole
// or not at all. With Index the file's index is written too, so that Items reads any stretch of it. Beat, if not nil, is called with the items done so far every few thousand items, in the caller's goroutine.
func (s *Store) Merge(ctx context.Context, in gpumux.MergeInput, beat func(items int64)) (gpumux.Merged, error) {
	fail := func(err error) (gpumux.Merged, error) {
		return gpumux.Merged{}, fmt.Errorf("merge %s into %s: %w", in.Parts, in.Output, err)
	}
	output, err := s.Key(in.Output)
	if err != nil {
		return fail(err)
	}
	folder, err := s.Key(in.Parts)
	if err != nil {
		return fail(err)
	}
	if in.Items < 0 {
		return fail(fmt.Errorf("%d items are less than none", in.Items))
	}
	parts, bytes, err := s.parts(ctx, folder)
	if err != nil {
		return fail(err)
	}
	file, err := s.create(ctx, output, creation{bytes: bytes})
	if err != nil {
		return fail(err)
	}
	defer file.Abort()
	var marks *indexWriter
	var index *Writer
	if in.Index != "" {
		if index, err = s.Create(ctx, in.Index); err != nil {
			return fail(err)
		}
		defer index.Abort()
		marks = newIndexWriter(index)
	}
	merged := gpumux.Merged{Items: in.Items, Output: s.Locate(output)}
	to := bufio.NewWriterSize(file, 512<<10)
	lines := s.walk(ctx, folder, parts)
	defer lines.close()
	var count tally
	for next := int64(0); ; next++ {
		c, err := lines.step()
		if err != nil && err != io.EOF {
			return fail(err)
		}
		switch {
		case next < in.Items && (err == io.EOF || c.index > next):
			return fail(fmt.Errorf("item %d has no result; run the map again, finished items are kept", next))
		case err == nil && c.index >= in.Items:
			return fail(fmt.Errorf("part %s holds item %d, but there are only %d; the folder is another map's", c.body.url,
				c.index, in.Items))
		}
		if err == io.EOF {
			break
		}
		if marks != nil {
			if err := marks.add(merged.Bytes); err != nil {
				return fail(err)
			}
		}
		count.add(c.outcome)
		merged.Bytes += int64(len(c.line))
		if _, err := to.Write(c.line); err != nil {
			return fail(err)
		}
		if beat != nil && next%beatItems == 0 {
			beat(next)
		}
	}
	if err := errors.Join(to.Flush(), file.Close()); err != nil {
		return fail(err)
	}
	if marks != nil {
		if err := errors.Join(marks.finish(merged.Bytes, 0), index.Close()); err != nil {
			return fail(err)
		}
	}
	merged.Succeeded, merged.Failed, merged.Faults = count.succeeded, count.failed, count.faults
	return merged, nil
}

// Spans returns all indexes that have a result in a folder, as spans in order that neither touch nor overlap.
func (s *Store) Spans(ctx context.Context, folder string) ([]gpumux.Span, error) {
	found, err := s.Find(ctx, folder)
	return found.Spans, err
}
