// Package report writes for people: standard error with a status line, progress, tables,
// how a map stands, why its items failed, and the live picture of `gpumux top`.
//
// It owns words and layout, how text reaches a terminal, and that no text of a task can
// steer it. It never asks a server or a store: its callers hand it what to show. Top
// returns when the user leaves or its context ends; all else returns when it has written.
package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Console is standard error: whole lines, and a status of one or more lines at the bottom
// of a terminal that they never garble. It may be written by many goroutines.
type Console struct {
	// Quiet drops progress, but never errors.
	Quiet bool
	// Phrase puts what is said into words of the command.
	Phrase func(text string) string

	mu sync.Mutex
	// to is the stream itself; visible escapes what is written to it.
	to, visible io.Writer
	fd          int // -1 when there is no status
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

func IsTerminal(stream any) bool { return terminalOf(stream) >= 0 }

// Redraws reports whether a status can be shown.
func (c *Console) Redraws() bool { return c.fd >= 0 }

func (c *Console) size() (width, height int) {
	if width, height, err := term.GetSize(c.fd); c.fd >= 0 && err == nil && width > 0 && height > 0 {
		return width, height
	}
	return 80, 24
}

func (c *Console) clear() {
	fmt.Fprint(c.to, "\r\x1b[K"+strings.Repeat("\x1b[A\x1b[K", strings.Count(c.status, "\n")))
}

// Write puts text above the status.
func (c *Console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		return c.visible.Write(text)
	}
	c.clear()
	if _, err := c.visible.Write(text); err != nil {
		return 0, err
	}
	fmt.Fprint(c.visible, c.status)
	return len(text), nil
}

// NoStatus switches the status off, where others write to the terminal.
func (c *Console) NoStatus() { c.fd = -1 }

// Status replaces the status, whose lines must fit the terminal.
func (c *Console) Status(lines string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lines == c.status {
		return
	}
	c.clear()
	c.status = lines
	fmt.Fprint(c.visible, lines)
}

func (c *Console) Close() {
	if c.Redraws() {
		c.Status("")
	}
}

func (c *Console) Say(format string, args ...any) {
	fmt.Fprintln(c, c.Phrase(fmt.Sprintf(format, args...)))
}

// Note is Say, unless --quiet.
func (c *Console) Note(format string, args ...any) {
	if !c.Quiet {
		c.Say(format, args...)
	}
}

// visible writes control characters as JSON escapes: the text of a task could move the
// cursor, rename the window or type commands. Bidirectional controls would reorder text.
// Many goroutines may write.
type visible struct {
	mu sync.Mutex
	to io.Writer
	// begun has the first bytes of a character that was cut in two.
	begun []byte
}

// Visible returns a stream whose text cannot steer the terminal.
func Visible(to io.Writer) io.Writer { return &visible{to: to} }

// Write holds back at most the beginning of a character.
func (v *visible) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	in := append(v.begun, text...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		r, size := utf8.DecodeRune(in)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, in[0])
		case steers(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, in[:size]...)
		}
		in = in[size:]
	}
	v.begun = append([]byte(nil), in...)
	_, err := v.to.Write(out)
	return len(text), err
}

func steers(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
