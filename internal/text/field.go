package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// FieldOf is the value of a field of an item, which is valid JSON: the last one where the
// item repeats it, as tasks read it. It is nil where the item is no object or lacks the
// field.
func FieldOf(item json.RawMessage, name string) (found json.RawMessage) {
	EachField(item, func(field string, value []byte) bool {
		if field == name {
			found = value
		}
		return true
	})
	return found
}

// CheckField checks that the first item has the field that is to be the key of items.
func CheckField(first json.RawMessage, name string) error {
	const shown = 20
	var names []string
	if !EachField(first, func(field string, _ []byte) bool { names = append(names, field); return true }) {
		return fmt.Errorf("%q is no field: the first item is no object but %s", name, Beginning(first))
	}
	if slices.Contains(names, name) {
		return nil
	}
	if len(names) > shown {
		names = append(names[:shown], "…")
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	return fmt.Errorf("the first item has no field %q; it has %s", name, strings.Join(names, ", "))
}

// EachField calls f with the fields of an object until it returns false. It reports
// whether the item is an object.
func EachField(item []byte, f func(name string, value []byte) bool) bool {
	s := &scanner{data: item}
	if s.space(); s.data[s.at] != '{' {
		return false
	}
	for s.next() {
		name := Unquoted(s.quoted())
		s.space()
		s.at++ // the colon
		if !f(name, s.value()) {
			break
		}
	}
	return true
}

// EachEntry calls f with the entries of a list until it returns false.
func EachEntry(list []byte, f func(value []byte) bool) {
	s := &scanner{data: list}
	s.space()
	for s.next() && f(s.value()) {
	}
}

// scanner walks valid JSON.
type scanner struct {
	data []byte
	at   int
}

// next goes on from the first bracket, or from a comma. It reports whether the object or
// list goes on, too.
func (s *scanner) next() bool {
	s.space()
	if c := s.data[s.at]; c == '}' || c == ']' {
		return false
	}
	s.at++
	s.space()
	return s.data[s.at] != '}' && s.data[s.at] != ']'
}

func (s *scanner) space() {
	for s.at < len(s.data) && strings.IndexByte(" \t\r\n", s.data[s.at]) >= 0 {
		s.at++
	}
}

// value passes over a value and returns it.
func (s *scanner) value() []byte {
	s.space()
	start, depth := s.at, 0
	for {
		switch s.data[s.at] {
		case '"':
			s.quoted()
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			s.at++
		default: // a number, true, false or null
			for s.at < len(s.data) && strings.IndexByte(",:]} \t\r\n", s.data[s.at]) < 0 {
				s.at++
			}
		}
		if depth == 0 {
			return s.data[start:s.at]
		}
	}
}

// quoted passes over a string and returns it with its quotes.
func (s *scanner) quoted() []byte {
	start := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[start:s.at]
}

// Unquoted is the text of a JSON string.
//
//workflowcheck:ignore
func Unquoted(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is a string
	return name
}

// Beginning is the first 60 bytes of a value, for messages about it.
func Beginning(value []byte) string {
	const most = 60
	if len(value) <= most {
		return strings.ToValidUTF8(string(value), "\uFFFD")
	}
	end := most
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(value[:end])), "\uFFFD") + "…"
}
