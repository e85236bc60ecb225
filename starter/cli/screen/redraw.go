package screen

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Redraws reports whether a stream is a terminal that Redraw can use.
func Redraws(stream io.Writer) bool { return obeys(stream) != nil }

// Redraw shows text from the top of a terminal, cut to its size, in place of what was there. The text must be
// visible already.
func Redraw(stream io.Writer, text string) error {
	file := obeys(stream)
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	picture := "\x1b[H"
	for _, line := range lines[:min(len(lines), height-1)] {
		picture += runewidth.Truncate(line, width, "") + "\x1b[K\n"
	}
	_, err = fmt.Fprint(file, picture+"\x1b[J")
	return err
}
