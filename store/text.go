package store

import (
	"strings"
	"unicode/utf8"
)

// textLines are the lines of a text as JSON strings, the empty ones too.
type textLines struct {
	jsonLines
	item []byte
}

func (l *textLines) next() ([]byte, int64, error) {
	line, begin, err := l.readLine("texts")
	if err != nil {
		return nil, 0, err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if !utf8.ValidString(text) {
		return nil, 0, &SourceError{l.name, l.number, "not UTF-8", excerpt(line), "convert the file with iconv"}
	}
	l.item = appendString(l.item[:0], text)
	return l.item, begin, nil
}
