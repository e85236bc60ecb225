package store

import (
	"bytes"
	"cmp"
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
	// Results from a cache are stored again at so many, or so many bytes.
	recalledItems = 1 << 14
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

// cacheFolder is where the records of maps lie whose results stand for each other's.
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
		over = digest([]any{c.Source.Hash, c.Source.Values})
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

// records are those of a cache, the newest first. What is none is left out.
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
	r := &recaller{s: f.s, folder: f, to: f.Append(), arrays: contract.KeepsArrays(f.key)}
	r.wanted = make([]wantedItem, 0, left.Len())
	err = f.s.eachContent(ctx, c.Source, c.Range, left, func(index int64, of contentHash) error {
		r.wanted = append(r.wanted, wantedItem{of, index})
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	slices.SortFunc(r.wanted, func(a, b wantedItem) int { return bytes.Compare(a.content[:], b.content[:]) })
	for _, of := range known {
		if r.found == left.Len() {
			break
		}
		err := r.take(ctx, of)
		if r.failed != nil || ctx.Err() != nil {
			return r.found, skipped, cmp.Or(r.failed, context.Cause(ctx))
		}
		if err != nil {
			skipped = append(skipped, err.Error())
		}
	}
	return r.found, skipped, r.store(ctx)
}

// contentHash is of an item, and of the key that it came with.
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

// wantedItem is an item without a result. Its index is -1 once it has one.
type wantedItem struct {
	content contentHash
	index   int64
}

// recaller looks for results in earlier maps.
type recaller struct {
	s      *Store
	folder *Folder
	to     *Appender
	// arrays says that the results may have them as bytes.
	arrays bool
	// wanted are the items by content.
	wanted []wantedItem
	// items and bytes wait to be stored; failed is why they could not be.
	items, bytes int
	failed       error
	found        int64
}

// take reads the items and the results of an earlier map side by side.
func (r *recaller) take(ctx context.Context, of record) error {
	o, err := r.s.Objects.Read(ctx, of.Output, 0, -1)
	if err != nil {
		return err
	}
	defer o.Close()
	if o.Size() != of.Bytes || !o.Changed().Equal(of.Modified) {
		return fmt.Errorf("%s was replaced", o.URL())
	}
	next, stop := iter.Pull2(results.Lines(o))
	defer stop()
	return r.s.eachContent(ctx, of.Source, of.Range, contract.Runs{{End: of.Items}}, func(index int64, content contentHash) error {
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
func (r *recaller) give(ctx context.Context, of record, content contentHash, line []byte) (err error) {
	at, wanted := slices.BinarySearchFunc(r.wanted, content, func(w wantedItem, c contentHash) int {
		return bytes.Compare(w.content[:], c[:])
	})
	if !wanted {
		return nil
	}
	var result gpumux.Result
	if r.arrays {
		result, err = results.ParseStored(line)
	} else {
		result, err = results.Parse(line)
	}
	kept := result
	from := &Folder{r.s, r.s.Objects, contract.PartsOf(of.Output)}
	for ; err == nil && at < len(r.wanted) && r.wanted[at].content == content; at++ {
		if result.Index = r.wanted[at].index; result.Index < 0 {
			continue
		}
		if err = from.CopyFiles(ctx, kept, r.folder, result.Index); err != nil {
			break
		}
		if err = r.to.Add(result); err == nil {
			r.wanted[at].index = -1
			r.found++
			r.items++
			r.bytes += len(line)
		}
	}
	if err == nil && (r.items >= recalledItems || r.bytes >= recalledBytes) {
		err = r.store(ctx)
	}
	return err
}

func (r *recaller) store(ctx context.Context) error {
	r.failed = r.to.Flush(ctx)
	r.items, r.bytes = 0, 0
	return r.failed
}
