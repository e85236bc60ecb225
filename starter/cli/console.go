package cli

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// console is standard error: whole lines, and at most one status line at the bottom of a terminal that they never garble. It
// may be written by many goroutines.
type console struct {
	mu sync.Mutex
	// to is the stream as it is, for what the console itself tells a terminal; text goes through visible.
	to      io.Writer
	visible *visible
	fd      int // -1 when it is no terminal
	status  string
	// quiet drops progress, but never errors.
	quiet bool
	// pasted completes the commands in what is said.
	pasted func(string) string
}

func newConsole(to io.Writer) *console {
	c := &console{to: to, visible: newVisible(to), fd: -1, pasted: func(text string) string { return text }}
	if isTerminal(to) && !dumb(os.Getenv("TERM")) {
		c.fd = int(to.(*os.File).Fd())
	}
	return c
}

// isTerminal reports whether a stream is a person's screen.
func isTerminal(stream any) bool {
	if v, ok := stream.(*visible); ok {
		stream = v.to
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// dumb reports whether a terminal of this kind shows escape sequences instead of obeying them.
func dumb(kind string) bool { return kind == "" || kind == "dumb" }

// terminal reports whether a status line can be shown.
func (c *console) terminal() bool { return c.fd >= 0 }

// width is the number of columns.
func (c *console) width() int {
	if width, _, err := term.GetSize(c.fd); c.fd >= 0 && err == nil && width > 0 {
		return width
	}
	return 80
}

const clearLine = "\r\x1b[K"

// Write puts text above the status line.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		return c.visible.Write(text)
	}
	fmt.Fprint(c.to, clearLine)
	if _, err := c.visible.Write(text); err != nil {
		return 0, err
	}
	fmt.Fprint(c.visible, c.status)
	return len(text), nil
}

// show replaces the status line.
func (c *console) show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line == c.status {
		return
	}
	c.status = line
	fmt.Fprint(c.to, clearLine)
	fmt.Fprint(c.visible, line)
}

// close takes the status line away.
func (c *console) close() {
	if c.terminal() {
		c.show("")
	}
}

// say prints a line for people.
func (c *console) say(format string, args ...any) {
	fmt.Fprintln(c, c.pasted(fmt.Sprintf(format, args...)))
}

// note is say, unless --quiet.
func (c *console) note(format string, args ...any) {
	if !c.quiet {
		c.say(format, args...)
	}
}
