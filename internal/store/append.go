package store

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

const (
	// A part is full at so many items or bytes. Until then each write replaces it.
	fullItems = 4096
	fullBytes = 1 << 20
	// maxPart bounds a write into one part, as far as a single result allows.
	maxPart = 8 << 20

	writerDigits = 24
)

// Appender adds results to the folder of a map. A part that is not full yet is replaced
// by a longer one. It belongs to one goroutine, but for At.
type Appender struct {
	// Feeds says that chunks of this process are likely to read the values soon, and that a
	// crash of the machine may take them. It takes no faults, which have been counted.
	Feeds bool

	f *Folder

	// growing are the lines of the part that is not full, in order of index.
	growing     []line
	growingSize int
	// pending are lines that are not written yet, in the memory of text, and feed the values
	// among them.
	pending []line
	text    []byte
	feed    []gpumux.Result

	mu   sync.Mutex
	name partName // of the part that grows
}

// Append starts an Appender. Its name sorts behind earlier ones, as far as clocks agree.
func (f *Folder) Append() *Appender {
	id := strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "") // it begins with the time
	return &Appender{f: f, name: partName{writer: id[:writerDigits]}}
}

// At is the end of the Appender: its parts from there on hold what is added later.
func (a *Appender) At() Position {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Position{a.name.writer, a.name.number}
}

// Add takes a result for the next Flush. The error says what is wrong with the result.
func (a *Appender) Add(r gpumux.Result) error {
	if r.Index < 0 {
		return fmt.Errorf("result %d: the index is negative", r.Index)
	}
	// Older lines stay where they are: to copy them would hold all of it twice.
	if size := r.Weight() + 64; cap(a.text)-len(a.text) < size {
		a.text = make([]byte, 0, max(size, min(2*cap(a.text), 2*maxPart)))
	}
	at := len(a.text)
	text, err := results.Append(a.text, r)
	if err != nil {
		return err
	}
	a.text = text
	added := line{results.Outcome{Index: r.Index}, text[at:]}
	if r.Fault != nil {
		added.Kind = r.Fault.Kind
	} else if a.Feeds {
		a.feed = append(a.feed, r)
	}
	a.pending = append(a.pending, added)
	return nil
}

// Flush writes what was added. When it returns nil, all of that survives a crash of the
// machine, unless it feeds a stage. After an error all of it waits for the next Flush.
func (a *Appender) Flush(ctx context.Context) error {
	for len(a.pending) > 0 {
		n, size := 0, a.growingSize
		for n < len(a.pending) && (n == 0 || size+len(a.pending[n].text) <= maxPart) {
			size += len(a.pending[n].text)
			n++
		}
		if err := a.extend(ctx, a.pending[:n], size); err != nil {
			return err
		}
		a.pending = a.pending[n:]
	}
	a.pending = nil
	// What goes on growing moves out of text, which is used again.
	for i, l := range a.growing {
		a.growing[i].text = bytes.Clone(l.text)
	}
	if a.text = a.text[:0]; cap(a.text) > 2*maxPart {
		a.text = nil
	}
	a.f.s.recent.put(a.f.key, a.feed)
	a.feed = nil
	return nil
}

func (a *Appender) extend(ctx context.Context, more []line, size int) error {
	all := append(slices.Clip(a.growing), more...)
	slices.SortStableFunc(all, func(x, y line) int { return cmp.Compare(x.Index, y.Index) })
	// The first result of an item counts.
	all = slices.CompactFunc(all, func(x, y line) bool { return x.Index == y.Index })
	full := len(all) >= fullItems || size >= fullBytes
	if err := a.write(ctx, all, full); err != nil {
		return err
	}
	a.growing, a.growingSize = all, size
	if full {
		a.growing, a.growingSize = nil, 0
		a.mu.Lock()
		a.name.number++
		a.mu.Unlock()
	}
	return nil
}

func (a *Appender) write(ctx context.Context, lines []line, full bool) error {
	h := partHead{Version: 1, Items: int64(len(lines)), First: lines[0].Index, Last: lines[len(lines)-1].Index, Full: full}
	sum, volatile := uint32(0), a.Feeds
	for _, l := range lines {
		h.Bytes += int64(len(l.text))
		sum, volatile = crc32.Update(sum, objects.Castagnoli, l.text), volatile && l.Kind == ""
	}
	h.Sum = fmt.Sprintf("%08x", sum)
	w, err := a.f.in.Create(ctx, a.f.keyOf(a.name), objects.Creation{Bytes: h.Bytes, Volatile: volatile})
	if err != nil {
		return err
	}
	defer w.Abort()
	to := bufio.NewWriterSize(w, int(min(h.Bytes+headBytes, 32<<10)))
	to.Write(h.firstLine()) // Flush returns the first error
	for _, l := range lines {
		to.Write(l.text)
	}
	if err := to.Flush(); err != nil {
		return err
	}
	return w.Close()
}
