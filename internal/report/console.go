package report

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Console is standard error: whole lines, and at most one status line at the bottom of a
// terminal that they never garble. It may be written by many goroutines.
type Console struct {
	// Quiet drops progress, but never errors.
	Quiet bool
	// Phrase puts what is said into words of the command.
	Phrase func(text string) string

	mu sync.Mutex
	// to is the stream itself; visible escapes what is written to it.
	to, visible io.Writer
	fd          int // -1 when there is no status line
	status      string
}

// NewConsole returns the console of a stream, which may be a terminal.
func NewConsole(to io.Writer) *Console {
	c := &Console{to: to, visible: Visible(to), fd: -1, Phrase: func(text string) string { return text }}
	if kind := os.Getenv("TERM"); kind != "" && kind != "dumb" {
		c.fd = terminalOf(to)
	}
	return c
}

// terminalOf returns the descriptor of a terminal behind a stream, or -1.
func terminalOf(stream any) int {
	if v, ok := stream.(*visible); ok {
		stream = v.to
	}
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return int(f.Fd())
	}
	return -1
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool { return terminalOf(stream) >= 0 }

// Redraws reports whether a status line can be shown.
func (c *Console) Redraws() bool { return c.fd >= 0 }

func (c *Console) width() int {
	if width, _, err := term.GetSize(c.fd); c.fd >= 0 && err == nil && width > 0 {
		return width
	}
	return 80
}

const clearLine = "\r\x1b[K"

// Write puts text above the status line.
func (c *Console) Write(text []byte) (int, error) {
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

// NoStatus switches the status line off, where others write to the terminal.
func (c *Console) NoStatus() { c.fd = -1 }

// Status replaces the status line.
func (c *Console) Status(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line == c.status {
		return
	}
	c.status = line
	fmt.Fprint(c.to, clearLine)
	fmt.Fprint(c.visible, line)
}

// Close takes the status line away.
func (c *Console) Close() {
	if c.Redraws() {
		c.Status("")
	}
}

// Say prints a line for people.
func (c *Console) Say(format string, args ...any) {
	fmt.Fprintln(c, c.Phrase(fmt.Sprintf(format, args...)))
}

// Note is Say, unless --quiet.
func (c *Console) Note(format string, args ...any) {
	if !c.Quiet {
		c.Say(format, args...)
	}
}
