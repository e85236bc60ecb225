package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

const (
	// maxRecords is how many completed maps a cache knows.
	maxRecords = 16
	// recalledBytes is how many bytes of results from a cache wait to be stored again.
	recalledBytes = 4 << 20
)

// record is an object of a cache: a completed map.
type record struct {
	// Version is 1.
	Version int              `json:"cache"`
	Source  *contract.Source `json:"source,omitempty"`
	Range   *gpumux.Range    `json:"range,omitempty"`
	Items   int64            `json:"items"`
	// Output is the key of the results file, of so many bytes and last changed then.
	Output   string    `json:"output"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
	key      string
}

// cacheFolder holds the records of maps whose results may stand for each other.
func cacheFolder(c contract.Cache) string { return names.Cache + "/" + digest(c.Owner) }

func digest(v any) string {
	text, _ := json.Marshal(v) // what is given always encodes
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// remember notes a completed map. One over the same items goes, and the oldest.
func (s *Store) remember(ctx context.Context, c contract.Cache, items int64, output string) error {
	o, err := s.Objects.Read(ctx, output, 0, 0)
	if err != nil {
		return err
	}
	r := record{Version: 1, Source: c.Source, Range: c.Range, Items: items, Output: output}
	r.Bytes, r.Modified = o.Size(), o.Changed().UTC()
	o.Close()
	over := digest(c.Range)
	if c.Source != nil {
		over = digest([]any{c.Source.Hash, c.Source.Values, c.Source.Failed})
	}
	text, _ := json.Marshal(r) // it always encodes
	if err := s.Objects.Put(ctx, cacheFolder(c)+"/"+over+".json", text, objects.Creation{Own: true}); err != nil {
		return err
	}
	known, err := s.records(ctx, c)
	if err != nil {
		return err
	}
	for _, old := range known[min(len(known), maxRecords):] {
		if err := s.Objects.Delete(ctx, old.key); err != nil {
			return err
		}
	}
	return nil
}

// records returns the valid records of a cache, the newest first.
func (s *Store) records(ctx context.Context, c contract.Cache) (known []record, err error) {
	folder := cacheFolder(c)
	names, err := s.Objects.Names(ctx, folder)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r := record{key: folder + "/" + name}
		text, err := s.Objects.ReadAll(ctx, r.key)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil || !strings.HasSuffix(name, ".json") || json.Unmarshal(text, &r) != nil || r.Version != 1 ||
			(r.Source == nil) == (r.Range == nil) {
			continue
		}
		known = append(known, r)
	}
	slices.SortFunc(known, func(a, b record) int { return b.Modified.Compare(a.Modified) })
	return known, nil
}

// recall writes into the folder the results that earlier maps have of equal items. It
// reads each earlier map once, and names those that it cannot read.
func (f *Folder) recall(ctx context.Context, c contract.Cache, rest contract.Work) (found int64, skipped []string, err error) {
	known, err := f.s.records(ctx, c)
	if err != nil || len(known) == 0 {
		return 0, nil, err
	}
	left, err := f.s.Sources.ItemsOf(ctx, rest)
	if err != nil {
		return 0, nil, err
	}
	r := &recaller{folder: f, to: f.Append(), wanted: map[contentHash][]int64{}}
	err = f.s.eachContent(ctx, c.Source, c.Range, left, func(index int64, of contentHash) error {
		r.wanted[of] = append(r.wanted[of], index)
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	for _, of := range known {
		if len(r.wanted) == 0 {
			break
		}
		if err := r.take(ctx, of); err != nil {
			skipped = append(skipped, err.Error())
		}
	}
	return r.found, skipped, r.to.Flush(ctx)
}

// contentHash is a hash of an item and the key that it came with.
type contentHash [16]byte

// eachContent calls f with the hashes of items until it returns an error.
func (s *Store) eachContent(
	ctx context.Context, source *contract.Source, numbers *gpumux.Range, of contract.Runs, f func(index int64, content contentHash) error,
) (err error) {
	give := func(index int64, text []byte) bool {
		sum := sha256.Sum256(text)
		err = f(index, contentHash(sum[:16]))
		return err == nil
	}
	if source == nil {
		for _, run := range of {
			for i := run.Start; i < run.End; i++ {
				if !give(i, strconv.AppendInt(nil, numbers.Start+i, 10)) {
					return err
				}
			}
		}
		return context.Cause(ctx)
	}
	picked := s.Sources.Pick(ctx, *source, of, func(index int64, line json.RawMessage) bool {
		var item, key json.RawMessage
		if item, key, err = items.Unwrap(*source, line); err != nil {
			return false
		}
		if key != nil {
			item = slices.Concat(item, []byte{'\n'}, key)
		}
		return give(index, item)
	})
	if err == nil {
		err = picked
	}
	return err
}

// recaller looks for results in earlier maps.
type recaller struct {
	folder *Folder
	to     *Appender
	// wanted are the items without a result by content.
	wanted map[contentHash][]int64
	// found counts the others; waiting is how many bytes of their results wait to be stored.
	found   int64
	waiting int
}

// take reads the items and the results of an earlier map side by side.
func (r *recaller) take(ctx context.Context, of record) error {
	o, err := r.folder.in.Read(ctx, of.Output, 0, -1)
	if err != nil {
		return err
	}
	defer o.Close()
	if o.Size() != of.Bytes || !o.Changed().Equal(of.Modified) {
		return fmt.Errorf("%s was replaced", o.URL())
	}
	next, stop := iter.Pull2(results.Lines(o))
	defer stop()
	return r.folder.s.eachContent(ctx, of.Source, of.Range, contract.Runs{{End: of.Items}}, func(index int64, content contentHash) error {
		line, err, more := next()
		if err == nil && !more {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("%s: result %d: %w", o.URL(), index, err)
		}
		is, err := results.ParseOutcome(line)
		if err != nil || is.Index != index {
			return fmt.Errorf("%s has no result %d in its place", o.URL(), index)
		}
		if is.Kind != "" {
			return nil // a fault may be another one next time, or none
		}
		return r.give(ctx, of, content, line)
	})
}

// give stores a result for the items that it is of.
func (r *recaller) give(ctx context.Context, of record, content contentHash, line []byte) error {
	indexes := r.wanted[content]
	if len(indexes) == 0 {
		return nil
	}
	parse := results.Parse
	if contract.KeepsArrays(r.folder.key) {
		parse = results.ParseStored
	}
	result, err := parse(line)
	if err != nil {
		return err
	}
	from := &Folder{r.folder.s, r.folder.in, contract.PartsOf(of.Output)}
	for ; len(indexes) > 0; r.wanted[content] = indexes {
		if err := from.CopyFiles(ctx, result, r.folder, indexes[0]); err != nil {
			return err
		}
		to := result
		to.Index, indexes = indexes[0], indexes[1:]
		if err := r.to.Add(to); err != nil {
			return err
		}
		r.found++
		r.waiting += len(line)
	}
	delete(r.wanted, content)
	if r.waiting < recalledBytes {
		return nil
	}
	r.waiting = 0
	return r.to.Flush(ctx)
}
