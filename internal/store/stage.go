package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

// catalogPart is a part in the object catalog.json of a stage's folder: what there was
// when its map began. Who needs older values than those that came since asks it.
type catalogPart struct {
	Writer string `json:"writer"`
	Number int    `json:"number"`
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
}

func (f *Folder) catalogKey() string { return f.key + "/catalog.json" }

func (f *Folder) writeCatalog(ctx context.Context, parts []part) error {
	if len(parts) == 0 {
		return nil
	}
	all := make([]catalogPart, len(parts))
	for i, p := range parts {
		all[i] = catalogPart{p.writer, p.number, p.First, p.Last}
	}
	text, _ := json.Marshal(all) // it always encodes
	return f.in.Put(ctx, f.catalogKey(), bytes.NewReader(text), objects.Creation{})
}

// Values calls take with the results of items of a stage, in any order; each is take's to
// keep. Where is as in contract.Values. Items that it does not call take with have no
// result there any more; note gets each part that is to blame.
func (f *Folder) Values(ctx context.Context, runs contract.Runs, where []contract.Written, take func(gpumux.Result) error, note func(error)) error {
	runs, err := f.s.recent.take(f.key, runs, take)
	if err != nil || len(runs) == 0 {
		return err
	}
	names, err := f.named(ctx, runs, where)
	if err != nil {
		return err
	}
	runs, err = f.valuesIn(ctx, names, runs, take, note)
	if err != nil || len(runs) == 0 {
		return err
	}
	// After damage they may lie in a part that nobody has named.
	if names, err = f.names(ctx); err == nil {
		_, err = f.valuesIn(ctx, names, runs, take, note)
	}
	return err
}

// valuesIn is Values from parts of these names. It returns the items that are in none.
func (f *Folder) valuesIn(ctx context.Context, names []partName, runs contract.Runs, take func(gpumux.Result) error, note func(error)) (left contract.Runs, err error) {
	lost := f.lost(ctx, note)
	parts, err := f.heads(ctx, names, lost)
	if err != nil {
		return nil, err
	}
	wanted := parts[:0]
	for _, p := range parts {
		if overlap(runs, p.First, p.Last) {
			wanted = append(wanted, p)
		}
	}
	var found contract.Runs
	for l, err := range f.walk(ctx, wanted, lost) {
		if err != nil {
			return nil, err
		}
		if !runs.Has(l.Index) {
			continue
		}
		r, err := results.ParseStored(l.text)
		if err == nil {
			err = take(r)
		}
		if err != nil {
			return nil, fmt.Errorf("read item %d in %s: %w", l.Index, f.in.Locate(f.key), err)
		}
		found.Add(l.Index)
	}
	return runs.Without(found), nil
}

func overlap(runs contract.Runs, first, last int64) bool {
	at, _ := runs.Find(first)
	return at < len(runs) && runs[at].Start <= last
}

// named are the parts that may have results of the items.
func (f *Folder) named(ctx context.Context, runs contract.Runs, where []contract.Written) (all []partName, err error) {
	for _, w := range where {
		from := Position{w.Writer, w.First}
		if !from.Valid() {
			return nil, fmt.Errorf("%q is no writer of parts", w.Writer)
		}
		for p := range from.parts {
			if p.number > w.Last {
				break
			}
			if w.Last == contract.Unknown { // up to the first that is not there
				if exists, err := f.in.Exists(ctx, f.keyOf(p)); err != nil {
					return nil, err
				} else if !exists {
					break
				}
			}
			all = append(all, p)
		}
	}
	if len(where) > 0 {
		return all, nil
	}
	text, err := f.in.ReadAll(ctx, f.catalogKey())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var catalog []catalogPart
	if err == nil {
		err = json.Unmarshal(text, &catalog)
	}
	for _, p := range catalog {
		if overlap(runs, p.First, p.Last) {
			all = append(all, partName{p.Writer, p.Number})
		}
	}
	return all, err
}

// spend deletes a stage's folder, but for the values of such items as are kept: another
// try of those that failed later goes on from there.
func (s *Store) spend(ctx context.Context, folder string, keep contract.Runs) error {
	f, err := s.Folder(folder)
	if err != nil {
		return err
	}
	var parts []part
	if len(keep) > 0 {
		if parts, err = f.parts(ctx, skipLost); err != nil {
			return err
		}
	}
	kept, size, found := f.Append(), 0, false
	for l, err := range f.walk(ctx, parts, skipLost) {
		if err != nil {
			return err
		}
		if l.Kind != "" || !keep.Has(l.Index) {
			continue
		}
		found = true
		kept.pending = append(kept.pending, line{l.Outcome, bytes.Clone(l.text)})
		if size += len(l.text); len(kept.pending) >= fullItems || size >= maxPart {
			if err := kept.Flush(ctx); err != nil {
				return err
			}
			size = 0
		}
	}
	if !found {
		return s.Objects.DeleteAll(ctx, f.key)
	}
	if err := kept.Flush(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if err := s.Objects.Delete(ctx, f.keyOf(p.partName)); err != nil {
			return err
		}
	}
	return nil
}

const (
	// recentBytes bounds the values that a Store remembers, entryBytes is what it takes to
	// remember one.
	recentBytes = 64 << 20
	entryBytes  = 256
)

// recent are the last values between stages that this process has stored, without those
// that were taken. Faults are not among them: another try may have replaced one
// elsewhere.
type recent struct {
	mu     sync.Mutex
	values map[place]gpumux.Result
	// stored is what was stored last, taken or not, the oldest first; bytes is its size.
	stored []entry
	bytes  int
}

type place struct {
	folder string
	index  int64
}

type entry struct {
	place
	bytes int
}

func (c *recent) put(folder string, values []gpumux.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range values {
		e := entry{place{folder, r.Index}, r.Weight() + entryBytes}
		c.values[e.place] = r
		c.stored = append(c.stored, e)
		c.bytes += e.bytes
	}
	for ; c.bytes > recentBytes; c.stored = c.stored[1:] {
		c.bytes -= c.stored[0].bytes
		delete(c.values, c.stored[0].place)
	}
}

// take calls take with those of the items that it knows, and returns the others. It
// forgets them: the next stage reads each once.
func (c *recent) take(folder string, runs contract.Runs, take func(gpumux.Result) error) (contract.Runs, error) {
	var found contract.Runs
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			c.mu.Lock()
			r, known := c.values[place{folder, i}]
			delete(c.values, place{folder, i})
			c.mu.Unlock()
			if !known {
				continue
			}
			if err := take(r); err != nil {
				return nil, err
			}
			found.Add(i)
		}
	}
	return runs.Without(found), nil
}
