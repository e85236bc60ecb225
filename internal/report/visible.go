package report

import (
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

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
	if _, err := v.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}

func steers(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
