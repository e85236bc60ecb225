package slot

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// keepHead and keepTail bound what is kept of one item's output; what lies between is counted and dropped.
	keepHead = 4 << 10
	keepTail = 12 << 10
	// keepDeath is how much of the last output a fault shows.
	keepDeath = 8 << 10
)

// output is the file that stands behind a process's standard output and standard error. A file, not a pipe: the process can
// never block on it or die of it, grandchildren may hold it open, and the bytes that an item wrote lie between two offsets
// that the process itself reports. What has been read is given back to the system.
type output struct {
	mu   sync.Mutex
	file *os.File
	read int64
}

func newOutput() (*output, error) {
	file, err := outputFile()
	if err != nil {
		return nil, fmt.Errorf("create output file of a task process: %w", err)
	}
	return &output{file: file}, nil
}

// upTo returns what was written since the last call and before the offset end, cut in the middle when it is long.
func (o *output) upTo(end int64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if end <= o.read {
		return ""
	}
	text := o.cut(o.read, end, keepHead, keepTail)
	release(o.file, o.read, end)
	o.read = end
	return text
}

// rest is upTo with everything written so far.
func (o *output) rest() string { return o.upTo(o.size()) }

// tail is the end of what was written and not yet read.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut(o.read, o.size(), 0, keepDeath)
}

// trim gives back all but the newest bytes of an item that prints without end.
func (o *output) trim(limit int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if end := o.size(); end-o.read > limit {
		release(o.file, o.read+keepHead, end-keepTail)
	}
}

func (o *output) size() int64 {
	info, err := o.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

func (o *output) cut(start, end, head, tail int64) string {
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
func (o *output) text(start, end int64) string {
	buf := make([]byte, end-start)
	n, err := o.file.ReadAt(buf, start)
	if err != nil && err != io.EOF {
		return fmt.Sprintf("(output could not be read: %v)", err)
	}
	s := string(buf[:n])
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

func (o *output) close() { o.file.Close() }
