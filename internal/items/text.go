package items

import (
	"bytes"
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
	line, begin, err := l.readLine()
	if err != nil {
		return nil, begin, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
	if !utf8.Valid(line) {
		return nil, begin, mistake(l.name, l.number, "not UTF-8", text.Beginning(line), "convert the file with iconv")
	}
	l.item = results.AppendString(l.item[:0], line)
	return l.item, begin, nil
}
