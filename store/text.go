package store

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/gpumux/gpumux"
)

// textLines are the lines of a text as JSON strings, the empty ones too.
type textLines struct {
	lineReader
	name   string
	number int
	offset int64
	item   []byte
}

func (l *textLines) next() ([]byte, int64, error) {
	begin := l.offset
	line, err := l.read()
	l.number++
	l.offset += int64(len(line))
	if err == errLongLine {
		return nil, 0, &SourceError{l.name, l.number, "the line is longer than " + gpumux.Size(maxLine).String(), start(line),
			"put large texts into files and let the items be their paths"}
	}
	if err != nil {
		return nil, 0, err
	}
	if begin == 0 {
		line = bytes.TrimPrefix(line, []byte(bom))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if !utf8.ValidString(text) {
		return nil, 0, &SourceError{l.name, l.number, "not UTF-8", start(line), "convert the file with iconv"}
	}
	l.item = appendString(l.item[:0], text)
	return l.item, begin, nil
}
