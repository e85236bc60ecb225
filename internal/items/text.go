package items

import (
	"strings"
	"unicode/utf8"

	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// textLines are the lines of a text as JSON strings, the empty ones too.
type textLines struct {
	jsonLines
	item []byte
}

func (l *textLines) next() ([]byte, position, error) {
	line, begin, err := l.readLine("texts")
	if err != nil {
		return nil, begin, err
	}
	plain := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if !utf8.ValidString(plain) {
		return nil, begin, &SourceError{l.name, l.number, "not UTF-8", text.Beginning(line), "convert the file with iconv"}
	}
	l.item = results.AppendString(l.item[:0], plain)
	return l.item, begin, nil
}
