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
)

const (
	// keepHead and keepTail bound what is kept of an item's output; the middle is dropped.
	keepHead = 4 << 10
	keepTail = 12 << 10
	// keepDeath is how much of the last output a fault shows.
	keepDeath = 16 << 10
	// outputLimit is how much may be in memory before a trim frees the unread middle. It is
	// the output of all items that have ended and are not read yet.
	outputLimit = 16 << 20
	trimEvery   = 200 * time.Millisecond
)

// Output is the file behind standard output and error. It is no pipe: the process never
// blocks on it, grandchildren may hold it open, and an item's bytes lie between two
// offsets that the process reports. Reading frees its memory.
//
// The process can truncate the file, make it as large as it likes, and report any offset.
// So each call asks for the size and checks the offset.
type Output struct {
	mu   sync.Mutex
	File *os.File
	read int64
	// freed and kept are where the middle that the trims have freed begins and ends.
	freed, kept int64
	// trimmer calls trim; nil once the file is closed.
	trimmer *time.Timer
}

func newOutput() (*Output, error) {
	file, err := outputFile()
	if err != nil {
		return nil, fmt.Errorf("create output file of a task process: %w", err)
	}
	o := &Output{File: file}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A timer costs an idle process no goroutine.
	o.trimmer = time.AfterFunc(trimEvery, o.trim)
	return o, nil
}

// UpTo returns what was written since the last call and before end, without the middle.
func (o *Output) UpTo(end int64) string {
	if end == 0 { // most items print nothing, and this is cheap
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
	// Only whole pages are freed, so a shared one goes with the last item.
	if page := int64(os.Getpagesize()); start/page != end/page {
		release(o.File, 0, end)
	}
	o.read = end
	return text
}

// Rest is UpTo with everything written so far.
func (o *Output) Rest() string { return o.UpTo(math.MaxInt64) }

func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	start, end, _ := o.unread()
	return o.cut(start, end, 0, keepDeath)
}

// trim frees the middle of the unread output, and schedules the next trim.
func (o *Output) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trimmer == nil {
		return
	}
	start, end, held := o.unread()
	if held > outputLimit {
		release(o.File, 0, start)
		if from, to := start+keepHead, end-keepTail; from < to {
			release(o.File, from, to)
			if o.kept > start { // not all of it has been read
				from = min(from, o.freed)
			}
			o.freed, o.kept = from, max(to, o.kept)
		}
	}
	o.trimmer.Reset(trimEvery)
}

// unread is where the unread part begins and ends, and how much of the file is in memory.
// A truncated file begins anew. The caller holds the lock.
func (o *Output) unread() (start, end, held int64) {
	if info, err := o.File.Stat(); err == nil {
		end = info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			held = stat.Blocks * 512
		}
	}
	if end < max(o.read, o.kept) {
		o.read, o.freed, o.kept = 0, 0, 0
	}
	return o.read, end, held
}

// cut is the text between two offsets without its middle, where that is long or freed.
func (o *Output) cut(start, end, head, tail int64) string {
	if end <= start {
		return ""
	}
	ahead, behind := start+head, end-tail
	if end-start <= head+tail {
		ahead, behind = end, start
	}
	if from, to := max(start, o.freed), min(end, o.kept); from < to {
		ahead, behind = min(ahead, from), max(behind, to)
	}
	switch {
	case ahead >= behind:
		return o.text(start, end)
	case head == 0:
		return o.text(behind, end)
	}
	return o.text(start, ahead) + fmt.Sprintf("\n… %d bytes left out …\n", behind-ahead) + o.text(behind, end)
}

// text returns valid UTF-8, because it travels in JSON.
func (o *Output) text(start, end int64) string {
	buf := make([]byte, end-start)
	n, err := o.File.ReadAt(buf, start)
	if err != nil && err != io.EOF {
		return fmt.Sprintf("(output could not be read: %v)", err)
	}
	return strings.ToValidUTF8(string(buf[:n]), "\uFFFD")
}

// close waits for a running trim, which would otherwise use a closed descriptor.
func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.trimmer != nil {
		o.trimmer.Stop()
		o.trimmer = nil
	}
	o.File.Close()
}
