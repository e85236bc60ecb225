package process

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	// keepHead and keepTail bound what is kept of one item's output; what lies between is counted and dropped.
	keepHead = 4 << 10
	keepTail = 12 << 10
	// keepDeath is how much of the last output a fault shows.
	keepDeath = 8 << 10
	// outputLimit is how much of the file may be in memory before all but the ends of what nobody has read is given back.
	outputLimit = 1 << 20
	// trimEvery is how often a file that grows is looked at, trimCalm how often one that does not.
	trimEvery = 200 * time.Millisecond
	trimCalm  = time.Second
)

// Output is the file that stands behind a process's standard Output and standard error. A file, not a pipe: the process can
// never block on it or die of it, grandchildren may hold it open, and the bytes that an item wrote lie between two offsets
// that the process itself reports. What has been read is given back to the system.
//
// The file is the process's as well: it may cut it short, as `echo x > /dev/stderr` in a shell does, make it as large as it likes,
// and report any offset. What it reports and how large the file is are never believed for longer than one look.
type Output struct {
	mu   sync.Mutex
	File *os.File
	// read is how far the file was read, and seen how large it was when it was last trimmed.
	read, seen int64
	// trims is when it is trimmed next, whether an item runs or not; nil once the file is closed.
	trims *time.Timer
}

func newOutput() (*Output, error) {
	file, err := outputFile()
	if err != nil {
		return nil, fmt.Errorf("create output file of a task process: %w", err)
	}
	o := &Output{File: file}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A timer costs a calm process no goroutine.
	o.trims = time.AfterFunc(trimEvery, o.trim)
	return o, nil
}

// UpTo returns what was written since the last call and before the offset end, cut in the middle when it is long.
func (o *Output) UpTo(end int64) string {
	if end <= 0 {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	start, size, _ := o.unread()
	end = min(end, size)
	if end <= start {
		return ""
	}
	text := o.cut(start, end, keepHead, keepTail)
	// Only whole pages are given back, so one that several items share goes with the last of them.
	if page := int64(os.Getpagesize()); start/page != end/page {
		release(o.File, 0, end)
	}
	o.read = end
	return text
}

// Rest is upTo with everything written so far.
func (o *Output) Rest() string { return o.UpTo(math.MaxInt64) }

// Tail is the end of what was written and not yet read.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	start, end, _ := o.unread()
	return o.cut(start, end, 0, keepDeath)
}

// Size is how much was written so far.
func (o *Output) Size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, end, _ := o.unread()
	return end
}

// From is what was written from an offset on, cut in the middle when it is long.
func (o *Output) From(start int64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, end, _ := o.unread()
	if end <= start {
		return ""
	}
	return o.cut(start, end, keepTail, keepHead)
}

// trim gives back all but the ends of what a process prints without end, and comes again.
func (o *Output) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trims == nil {
		return
	}
	start, end, held := o.unread()
	if held > outputLimit {
		release(o.File, 0, start)
		release(o.File, start+keepHead, end-keepTail)
	}
	next := trimCalm
	if end != o.seen {
		next = trimEvery
	}
	o.seen = end
	o.trims.Reset(next)
}

// unread is where what nobody has read begins and ends, and how much of the file is in memory. A file that ends before what was
// read begins anew. The caller holds the lock.
func (o *Output) unread() (start, end, held int64) {
	if info, err := o.File.Stat(); err == nil {
		end = info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			held = stat.Blocks * 512
		}
	}
	if end < o.read {
		o.read = 0
	}
	return o.read, end, held
}

func (o *Output) cut(start, end, head, tail int64) string {
	if end-start <= head+tail {
		return o.text(start, end)
	}
	last := o.text(end-tail, end)
	if head == 0 {
		return last
	}
	return o.text(start, start+head) + fmt.Sprintf("\n… %d bytes left out …\n", end-start-head-tail) + last
}

// text is valid UTF-8 whatever the process wrote, because it travels in JSON.
func (o *Output) text(start, end int64) string {
	buf := make([]byte, end-start)
	n, err := o.File.ReadAt(buf, start)
	if err != nil && err != io.EOF {
		return fmt.Sprintf("(output could not be read: %v)", err)
	}
	s := string(buf[:n])
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// close waits for a trim, whose descriptor could be another file's by then.
func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trims != nil {
		o.trims.Stop()
		o.trims = nil
	}
	o.File.Close()
}
