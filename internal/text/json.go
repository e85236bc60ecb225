package text

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"
)

// Marshal is JSON on one line, without the escapes that only web pages need.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Valid reports whether text is JSON in UTF-8. It skips the plain bytes in strings, most
// of a long text, eight at a time.
func Valid(text []byte) bool {
	var room [256]byte
	bones, quoted := room[:0], false // what is left without that
	for rest := text; len(rest) > 0; {
		n := Literal(rest)
		kept, end := n, min(n+1, len(rest))
		if quoted {
			kept = min(n, len("0000")) // it may be of an escape
		}
		if bytes.HasPrefix(rest[n:], []byte{'\\'}) {
			end = min(n+2, len(rest))
		}
		quoted = quoted != bytes.HasPrefix(rest[n:], []byte{'"'})
		bones, rest = append(append(bones, rest[:kept]...), rest[n:end]...), rest[end:]
	}
	return json.Valid(bones) && utf8.Valid(text)
}

// Literal is how many bytes from the beginning of a text a JSON string holds as they are:
// those before the first quote, backslash or control character.
func Literal(text []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(text)-n >= 8; n += 8 {
		// A byte is below another where their difference borrows.
		x := binary.LittleEndian.Uint64(text[n:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		if ((x-' '*ones)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	for n < len(text) && text[n] >= ' ' && text[n] != '"' && text[n] != '\\' {
		n++
	}
	return n
}
