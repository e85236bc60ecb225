package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

// partName is <writer>.<number>.jsonl. A writer counts its parts without a gap.
type partName struct {
	writer string
	number int
}

func (p partName) String() string { return fmt.Sprintf("%s.%06d.jsonl", p.writer, p.number) }

var partFile = regexp.MustCompile(fmt.Sprintf(`^([0-9a-f]{%d})\.([0-9]{6,})\.jsonl$`, writerDigits))

// parsePart reads an object's name. It is not ok for other objects of the folder.
func parsePart(name string) (p partName, ok bool) {
	found := partFile.FindStringSubmatch(name)
	if found == nil {
		return partName{}, false
	}
	number, err := strconv.Atoi(found[2])
	return partName{found[1], number}, err == nil
}

// headBytes is the size of a part's first line, which says what follows it.
const headBytes = 160

type partHead struct {
	// Version is 1.
	Version int   `json:"part"`
	Items   int64 `json:"items"`
	First   int64 `json:"least"`
	Last    int64 `json:"most"`
	// Bytes is the size of the lines behind the head, Sum their CRC-32C.
	Bytes int64  `json:"bytes"`
	Sum   string `json:"crc32c"`
	// Full says that the part will not be replaced by a longer one.
	Full bool `json:"full"`
}

func (h partHead) firstLine() []byte {
	text, _ := json.Marshal(h) // it always encodes
	return fmt.Appendf(nil, "%-*s\n", headBytes-1, text)
}

func parsePartHead(text []byte) (h partHead, err error) {
	if len(text) != headBytes || text[headBytes-1] != '\n' {
		return h, objects.Damaged("it has no whole first line")
	}
	if err := json.Unmarshal(text, &h); err != nil || h.Version < 1 {
		return h, objects.Damaged("its first line is not a part's: %.60q", text)
	}
	if h.Version != 1 {
		return h, &OwnerError{Problem: fmt.Sprintf("a part is of version %d, this gpumux reads version 1; let workers of one version end the map", h.Version)}
	}
	if h.Items < 1 || h.First < 0 || h.Last-h.First+1 < h.Items || h.Bytes < 1 {
		return h, objects.Damaged("its first line contradicts itself")
	}
	return h, nil
}

type part struct {
	partName
	partHead
}

// compare orders parts by where they begin, then by name.
func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.First, q.First), strings.Compare(p.String(), q.String()))
}

// partError says that a part's contents have changed since it was written.
type partError struct {
	URL, Problem string
	part         partName
}

func (e *partError) Error() string { return fmt.Sprintf("part %s is damaged: %s", e.URL, e.Problem) }

// line is a result as it is stored in a part, with its newline.
type line struct {
	results.Outcome
	text []byte
}

// Folder is where the results of one map lie until they are merged, with the files of its
// items. Many goroutines may use it.
type Folder struct {
	s   *Store
	in  *objects.Bucket
	key string
}

func (f *Folder) keyOf(p partName) string { return f.key + "/" + p.String() }

// unread is an error of reading a part: a *partError where the part itself is to blame.
func (f *Folder) unread(p partName, err error) error {
	if damage, ok := errors.AsType[*objects.DamageError](err); ok {
		return &partError{f.in.Locate(f.keyOf(p)), damage.Problem, p}
	}
	return err
}

func (f *Folder) names(ctx context.Context) (all []partName, err error) {
	names, err := f.in.Names(ctx, f.key)
	for _, name := range names {
		if p, ok := parsePart(name); ok {
			all = append(all, p)
		}
	}
	return all, err
}

// heads reads the first lines of parts and returns the parts in order. It calls lost for
// each part that is damaged or gone; an error of lost ends it.
func (f *Folder) heads(ctx context.Context, names []partName, lost func(error) error) (good []part, err error) {
	for p, err := range objects.Ahead(objects.Abreast, slices.Values(names), func(p partName) (part, error) { return f.head(ctx, p) }) {
		if err == nil {
			good = append(good, p)
		} else if err := lost(err); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(good, part.compare)
	return good, nil
}

func (f *Folder) head(ctx context.Context, p partName) (part, error) {
	text, err := f.in.ReadExactly(ctx, f.keyOf(p), 0, headBytes)
	var head partHead
	if err == nil {
		head, err = parsePartHead(text)
	}
	return part{p, head}, f.unread(p, err)
}

// load reads the lines of a part and checks them.
func (f *Folder) load(ctx context.Context, p partName) ([]line, error) {
	text, err := f.in.ReadAll(ctx, f.keyOf(p))
	var lines []line
	if err == nil {
		lines, err = parsePartText(text)
	}
	return lines, f.unread(p, err)
}

func parsePartText(text []byte) ([]line, error) {
	head, err := parsePartHead(text[:min(len(text), headBytes)])
	if err != nil {
		return nil, err
	}
	text = text[headBytes:]
	lines := make([]line, 0, min(head.Items, int64(len(text)/16)))
	before := head.First - 1
	for t := range bytes.Lines(text) {
		is, err := results.ParseOutcome(t)
		if err != nil {
			return nil, objects.Damaged("line %d: %v", len(lines)+2, err)
		}
		if is.Index <= before || is.Index > head.Last {
			return nil, objects.Damaged("line %d: item %d is out of order or outside the part", len(lines)+2, is.Index)
		}
		before = is.Index
		lines = append(lines, line{is, t})
	}
	sum := fmt.Sprintf("%08x", crc32.Checksum(text, objects.Castagnoli))
	if int64(len(lines)) != head.Items || int64(len(text)) != head.Bytes || sum != head.Sum {
		return nil, objects.Damaged("it has %d results in %d bytes with checksum %s, and was written with %d in %d with %s",
			len(lines), len(text), sum, head.Items, head.Bytes, head.Sum)
	}
	return lines, nil
}

// lost sets a damaged part aside and calls note. It passes over a part that is gone.
func (f *Folder) lost(ctx context.Context, note func(error)) func(error) error {
	return func(err error) error {
		var damaged *partError
		switch {
		case errors.As(err, &damaged):
			note(err)
			// So it stays for people to look at, and its items run again.
			err := f.in.Move(ctx, f.keyOf(damaged.part), path.Join(f.key, "damaged", damaged.part.String()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // else somebody was first
				return fmt.Errorf("set the damaged part %s aside: %w", damaged.URL, err)
			}
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	}
}

func (f *Folder) parts(ctx context.Context, lost func(error) error) ([]part, error) {
	names, err := f.names(ctx)
	if err != nil {
		return nil, err
	}
	return f.heads(ctx, names, lost)
}

// loadedAhead is how many parts are loaded before their turn.
const loadedAhead = 4

// opened is a part being merged: its unread lines. order ranks it among the parts.
type opened struct {
	lines []line
	order int
}

func (o opened) before(p opened) bool {
	return o.lines[0].Index < p.lines[0].Index || o.lines[0].Index == p.lines[0].Index && o.order < p.order
}

// walk yields lines of parts, valid until the next step, in order of index; of several
// with one index the first part's. It calls lost for a part that is damaged or gone.
func (f *Folder) walk(ctx context.Context, parts []part, lost func(error) error) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		next, stop := iter.Pull2(objects.Ahead(loadedAhead, slices.Values(parts), func(p part) ([]line, error) {
			return f.load(ctx, p.partName)
		}))
		defer stop()
		// open are the parts that have begun, by their next lines.
		var open []opened
		asked, last := 0, int64(-1)
		for {
			for asked < len(parts) && (len(open) == 0 || parts[asked].First <= open[0].lines[0].Index) {
				lines, err, _ := next()
				if err == nil {
					o := opened{lines, asked}
					open = slices.Insert(open, sort.Search(len(open), func(i int) bool { return o.before(open[i]) }), o)
				} else if err := lost(err); err != nil {
					yield(line{}, err)
					return
				}
				asked++
			}
			if len(open) == 0 {
				return
			}
			first := open[0]
			l := first.lines[0]
			if l.Index > last {
				last = l.Index
				if !yield(l, nil) {
					return
				}
			}
			if first.lines = first.lines[1:]; len(first.lines) == 0 {
				open = open[1:]
				continue
			}
			at := sort.Search(len(open)-1, func(i int) bool { return first.before(open[i+1]) })
			copy(open, open[1:at+1])
			open[at] = first
		}
	}
}

// Position is where an Appender stood: what its parts from Number on hold came later.
type Position struct {
	Writer string `json:"writer"`
	Number int    `json:"number"`
}

// Valid reports whether an Appender can have stood there.
func (w Position) Valid() bool {
	_, ok := parsePart(partName{w.Writer, w.Number}.String())
	return ok
}

// parts are the names of the writer's parts from that moment on, without an end.
func (w Position) parts(yield func(partName) bool) {
	for number := w.Number; yield(partName{w.Writer, number}); number++ {
	}
}

// Written are the positions behind which parts were written since, by the store's clock.
func (f *Folder) Written(ctx context.Context, since time.Time) (all []Position, err error) {
	numbers := map[string]int{}
	for o, err := range f.in.Objects(ctx, f.key) {
		if err != nil {
			return nil, err
		}
		p, ok := parsePart(path.Base(o.Key))
		if !ok || o.Changed.Before(since) {
			continue
		}
		if number, known := numbers[p.writer]; !known || p.number < number {
			numbers[p.writer] = p.number
		}
	}
	for _, writer := range slices.Sorted(maps.Keys(numbers)) {
		all = append(all, Position{writer, numbers[writer]})
	}
	return all, nil
}

// Since calls each with every result of the writer's parts from that moment on. It sets
// damaged parts aside and calls damaged for each.
func (f *Folder) Since(ctx context.Context, w Position, each func(index int64, kind gpumux.FaultKind), damaged func(error)) error {
	if !w.Valid() {
		return fmt.Errorf("%q is no writer of parts", w.Writer)
	}
	lost := f.lost(ctx, damaged)
	for lines, err := range objects.Ahead(loadedAhead, w.parts, func(p partName) ([]line, error) { return f.load(ctx, p) }) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			if err := lost(err); err != nil {
				return err
			}
		}
		for _, l := range lines {
			each(l.Index, l.Kind)
		}
	}
	return nil
}
