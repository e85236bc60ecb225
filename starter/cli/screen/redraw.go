package screen

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Redraw shows text in place of the text before, from the top of a terminal and cut to its size.
type Redraw struct {
	to    *os.File
	begun bool
}

// NewRedraw is nil where a stream is no terminal that could be redrawn.
func NewRedraw(stream io.Writer) *Redraw {
	if file := obeys(stream); file != nil {
		return &Redraw{to: file}
	}
	return nil
}

// Show replaces what is on the screen. The text must be visible already.
func (r *Redraw) Show(text string) error {
	width, height, err := term.GetSize(int(r.to.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var b strings.Builder
	if !r.begun {
		r.begun = true
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for _, line := range lines[:min(len(lines), height-1)] {
		if cells := []rune(line); len(cells) > width {
			line = string(cells[:width])
		}
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err = io.WriteString(r.to, b.String())
	return err
}
