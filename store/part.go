package store

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// part is what one attempt at one chunk stored: the object <start>-<end>.<seq>.jsonl of a folder. Not every index of the
// chunk has to be in it; those that are stand in order.
type part struct {
	start, end int64
	seq        int
}

func (p part) key(folder string) string {
	return fmt.Sprintf("%s/%012d-%012d.%04d.jsonl", folder, p.start, p.end, p.seq)
}

func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.start, q.start), cmp.Compare(p.end, q.end), cmp.Compare(p.seq, q.seq))
}

// parsePart reads an object's name; other objects of the folder are none of ours.
func parsePart(name string) (p part, ok bool) {
	name, ok = strings.CutSuffix(name, ".jsonl")
	chunk, seq, dot := strings.Cut(name, ".")
	begin, end, dash := strings.Cut(chunk, "-")
	if !ok || !dot || !dash || len(begin) < 12 || len(end) < 12 || len(seq) < 4 {
		return part{}, false
	}
	var errs [3]error
	p.start, errs[0] = strconv.ParseInt(begin, 10, 64)
	p.end, errs[1] = strconv.ParseInt(end, 10, 64)
	p.seq, errs[2] = strconv.Atoi(seq)
	return p, errors.Join(errs[:]...) == nil && p.start >= 0 && p.end > p.start && p.seq >= 0
}

// parts lists the parts of a folder in order of name, and their bytes together as far as known.
func (s *Store) parts(ctx context.Context, folder string) (all []part, bytes int64, err error) {
	if folder, err = s.Key(folder); err != nil {
		return nil, 0, err
	}
	err = s.list(ctx, folder, func(name string, size int64) {
		if p, ok := parsePart(name); ok {
			all = append(all, p)
			bytes += max(0, size)
		}
	})
	slices.SortFunc(all, part.compare)
	return all, bytes, err
}

// WritePart stores what an attempt at the chunk [start, end) came to, in any order, as folder/<start>-<end>.<seq>.jsonl. Seq
// is the number that Finished gave, 0 for a chunk never tried. An attempt that was given up but still writes cannot take the
// place of another: when the number is taken the next free one is used. No results store nothing.
func (s *Store) WritePart(ctx context.Context, folder string, start, end int64, seq int, results []gpumux.Result) error {
	folder, err := s.Key(folder)
	if err != nil {
		return err
	}
	p := part{start, end, seq}
	if start < 0 || end <= start || seq < 0 {
		return fmt.Errorf("part %s: start, end and number do not make a part", p.key(folder))
	}
	byIndex := func(a, b gpumux.Result) int { return cmp.Compare(a.Index, b.Index) }
	if !slices.IsSortedFunc(results, byIndex) {
		results = slices.SortedFunc(slices.Values(results), byIndex)
	}
	for i, r := range results {
		if r.Index < start || r.Index >= end || i > 0 && r.Index == results[i-1].Index {
			return fmt.Errorf("part %s: result %d lies outside the chunk or is there twice", p.key(folder), r.Index)
		}
	}
	if len(results) == 0 {
		return nil
	}
	if seq > 0 { // Finished stops at the first gap
		before, err := s.Exists(ctx, part{start, end, seq - 1}.key(folder))
		if err == nil && !before {
			err = fmt.Errorf("part %s: there is none numbered %d; use the number that Finished gives", p.key(folder), seq-1)
		}
		if err != nil {
			return err
		}
	}
	for exclusive := true; ; {
		err := s.writePart(ctx, p.key(folder), results, exclusive)
		var refusal interface{ ErrorCode() string }
		switch {
		case errors.Is(err, fs.ErrExist):
			p.seq++
		case exclusive && errors.As(err, &refusal) && refusal.ErrorCode() == "NotImplemented":
			// The server cannot refuse to overwrite; look before writing instead.
			for exclusive = false; ; p.seq++ {
				there, looked := s.Exists(ctx, p.key(folder))
				if looked != nil {
					return looked
				}
				if !there {
					break
				}
			}
		default:
			return err
		}
	}
}

func (s *Store) writePart(ctx context.Context, key string, results []gpumux.Result, exclusive bool) error {
	w, err := s.create(ctx, key, creation{exclusive: exclusive})
	if err != nil {
		return err
	}
	defer w.Abort()
	to := bufio.NewWriterSize(w, 64<<10)
	lines := lineWriter{to: to}
	for _, r := range results {
		if err := lines.write(r); err != nil {
			return fmt.Errorf("part %s: %w", key, err)
		}
	}
	if err := to.Flush(); err != nil {
		return err
	}
	return w.Close()
}

// ReadPart returns the results of one part in order. A part that is not there is an fs.ErrNotExist.
func (s *Store) ReadPart(ctx context.Context, folder string, start, end int64, seq int) ([]gpumux.Result, error) {
	var results []gpumux.Result
	err := s.eachLine(ctx, folder, part{start, end, seq}, func(line []byte, o outcome) error {
		r, err := readResult(line)
		results = append(results, r)
		return err
	})
	return results, err
}

// Stored is what earlier attempts at exactly one chunk stored.
type Stored struct {
	Start, End int64
	// Seq is the number for the next part of this chunk.
	Seq int
	// Items is how many indexes have a result; Succeeded and Failed are of those, and Faults of the failed by kind.
	Items, Succeeded, Failed int64
	Faults                   map[gpumux.Kind]int64

	have []uint64
}

// Has says whether an index of the chunk has a result.
func (d *Stored) Has(index int64) bool {
	at := index - d.Start
	return index >= d.Start && index < d.End && d.have[at/64]&(1<<(at%64)) != 0
}

// Finished reads what earlier attempts at exactly the chunk [start, end) stored. Where two hold an index the first counts.
func (s *Store) Finished(ctx context.Context, folder string, start, end int64) (*Stored, error) {
	if start < 0 || end <= start {
		return nil, fmt.Errorf("items %d to %d are no chunk", start, end)
	}
	d := &Stored{Start: start, End: end, have: make([]uint64, (end-start+63)/64)}
	var count tally
	for {
		err := s.eachLine(ctx, folder, part{start, end, d.Seq}, func(_ []byte, o outcome) error {
			if !d.Has(o.index) {
				at := o.index - start
				d.have[at/64] |= 1 << (at % 64)
				count.add(o)
			}
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		d.Seq++
	}
	d.Succeeded, d.Failed, d.Faults = count.succeeded, count.failed, count.faults
	d.Items = d.Succeeded + d.Failed
	return d, nil
}

// eachLine calls f with every line of a part.
func (s *Store) eachLine(ctx context.Context, folder string, p part, f func(line []byte, o outcome) error) error {
	folder, err := s.Key(folder)
	if err != nil {
		return err
	}
	body, err := s.open(ctx, p.key(folder), 0, -1)
	if err != nil {
		return err
	}
	c := newCursor(p, 0, body, nil)
	defer c.close()
	for {
		if err := c.next(); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := f(c.line, c.outcome); err != nil {
			return err
		}
	}
}
