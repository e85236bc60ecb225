package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

const (
	// mostRecords is how many completed maps a cache knows.
	mostRecords = 16
	// Results from a cache are stored again at so many, or so many bytes.
	recalledItems = 1 << 14
	recalledBytes = 4 << 20
)

// mostWanted is how many items are looked for at a time. Only tests change it.
var mostWanted = 1 << 21

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

// remember notes a completed map for later ones. One over the same items takes its place, and the oldest goes.
func (s *Store) remember(ctx context.Context, c contract.Cache, items int64, output string) error {
	o, err := s.open(ctx, output, 0, 0)
	if err != nil {
		return err
	}
	r := record{Version: 1, Source: c.Source, Range: c.Range, Items: items, Output: output}
	r.Bytes, r.Modified = o.body.Size(), o.body.ModTime().UTC()
	o.Close()
	over := digest(c.Range)
	if c.Source != nil {
		over = digest([]any{c.Source.Hash, c.Source.Values})
	}
	text, _ := json.Marshal(r) // it always encodes
	if err := s.put(ctx, cacheFolder(c)+"/"+over+".json", text, creation{own: true}); err != nil {
		return err
	}
	known, err := s.records(ctx, c)
	if err != nil {
		return err
	}
	for _, old := range known[min(len(known), mostRecords):] {
		if err := s.Delete(ctx, old.key); err != nil {
			return err
		}
	}
	return nil
}

// records are those of a cache, the newest first. What is none is left out.
func (s *Store) records(ctx context.Context, c contract.Cache) (known []record, err error) {
	var names []string
	folder := cacheFolder(c)
	if err := s.list(ctx, folder, func(name string, _ int64) { names = append(names, name) }); err != nil {
		return nil, err
	}
	for _, name := range names {
		r := record{key: folder + "/" + name}
		text, err := s.readSmall(ctx, r.key, sealedOnly)
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

// recall writes into a folder the results that earlier maps have of equal items, of those that are left. It reads each earlier map
// once for every mostWanted items. It leaves out a map whose items or results cannot be read, and names it in skipped.
func (s *Store) recall(ctx context.Context, folder string, c contract.Cache, rest contract.Work) (found int64, skipped []string, err error) {
	known, err := s.records(ctx, c)
	if err != nil || len(known) == 0 {
		return 0, nil, err
	}
	left, err := s.ItemsOf(ctx, rest)
	if err != nil {
		return 0, nil, err
	}
	to, err := s.Append(folder)
	if err != nil {
		return 0, nil, err
	}
	r := &recaller{s: s, folder: folder, to: to, arrays: contract.KeepsArrays(folder), known: known}
	r.wanted = make([]wantedItem, 0, min(left.Len(), int64(mostWanted)))
	err = s.eachContent(ctx, c.Source, c.Range, left, func(index int64, of contentHash) error {
		if r.wanted = append(r.wanted, wantedItem{of, index}); len(r.wanted) < mostWanted {
			return nil
		}
		return r.lookUp(ctx)
	})
	if err == nil {
		err = r.lookUp(ctx)
	}
	return r.found, r.skipped, err
}

// contentHash is of an item, and of the key that it came with.
type contentHash [16]byte

// eachContent calls f with the hashes of items until it returns an error.
func (s *Store) eachContent(
	ctx context.Context, source *contract.Source, numbers *gpumux.Range, items contract.Runs, f func(index int64, of contentHash) error,
) (err error) {
	give := func(index int64, text []byte) bool {
		sum := sha256.Sum256(text)
		err = f(index, contentHash(sum[:16]))
		return err == nil
	}
	if source == nil {
		for _, run := range items {
			for i := run.Start; i < run.End; i++ {
				if !give(i, strconv.AppendInt(nil, numbers.Start+i, 10)) {
					return err
				}
			}
		}
		return context.Cause(ctx)
	}
	picked := s.Pick(ctx, *source, items, func(index int64, line json.RawMessage) bool {
		var item, key json.RawMessage
		if item, key, err = Unwrap(*source, line); err != nil {
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
	folder string
	to     *Appender
	// arrays says that the results may have them as bytes.
	arrays  bool
	known   []record
	skipped []string
	// wanted are the items that are looked for now, by content; left is how many of them have no result.
	wanted []wantedItem
	left   int
	// items and bytes wait to be stored; failed is why they could not be.
	items, bytes int
	failed       error
	found        int64
}

// lookUp looks for the wanted items in one earlier map after the other.
func (r *recaller) lookUp(ctx context.Context) error {
	slices.SortFunc(r.wanted, func(a, b wantedItem) int { return bytes.Compare(a.content[:], b.content[:]) })
	r.left = len(r.wanted)
	r.known = slices.DeleteFunc(r.known, func(of record) bool {
		if r.left == 0 || r.failed != nil || ctx.Err() != nil {
			return false
		}
		err := r.take(ctx, of)
		if err == nil || r.failed != nil || ctx.Err() != nil {
			return false
		}
		r.skipped = append(r.skipped, err.Error())
		return true
	})
	if r.failed == nil && ctx.Err() == nil {
		r.store(ctx)
	}
	r.wanted = r.wanted[:0]
	if r.failed == nil {
		r.failed = context.Cause(ctx)
	}
	return r.failed
}

// take reads the items and the results of an earlier map side by side.
func (r *recaller) take(ctx context.Context, of record) error {
	o, err := r.s.open(ctx, of.Output, 0, -1)
	if err != nil {
		return err
	}
	defer o.Close()
	if o.body.Size() != of.Bytes || !o.body.ModTime().Equal(of.Modified) {
		return fmt.Errorf("%s was replaced", o.url)
	}
	lines := lineReader{r: bufio.NewReaderSize(o, 256<<10), left: of.Bytes}
	return r.s.eachContent(ctx, of.Source, of.Range, contract.Runs{{End: of.Items}}, func(index int64, content contentHash) error {
		line, err := lines.read()
		if err != nil {
			return fmt.Errorf("%s: result %d: %w", o.url, index, err)
		}
		is, err := parseOutcome(line)
		if err != nil || is.index != index {
			return fmt.Errorf("%s has no result %d in its place", o.url, index)
		}
		if is.kind != "" {
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
		result, err = ParseStored(line)
	} else {
		result, err = ParseResult(line)
	}
	kept := result
	for ; err == nil && at < len(r.wanted) && r.wanted[at].content == content; at++ {
		if result.Index = r.wanted[at].index; result.Index < 0 {
			continue
		}
		if err = r.s.CopyFiles(ctx, contract.PartsOf(of.Output), kept, r.folder, result.Index); err != nil {
			break
		}
		if err = r.to.Add(result); err == nil {
			r.wanted[at].index = -1
			r.left--
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
