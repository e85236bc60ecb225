package gpumux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// FieldOf is the value of a field of an item, which is valid JSON: the last one where the item repeats it, as it is for the readers of JSON
// that tasks have. It is nil where the item is no object or lacks the field.
func FieldOf(item json.RawMessage, name string) (found json.RawMessage) {
	eachField(item, func(field string, value []byte) bool {
		if field == name {
			found = value
		}
		return true
	})
	return found
}

// CheckField returns why a field cannot be the key of items, as the first of them tells, or nil.
func CheckField(first json.RawMessage, name string) error {
	const shown = 20
	var names []string
	if !eachField(first, func(field string, _ []byte) bool { names = append(names, field); return true }) {
		return fmt.Errorf("%q is no field: the first item is no object but %s", name, excerpt(first))
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

// eachField calls f with the fields of an object until it returns false. It reports whether the item is an object.
func eachField(item []byte, f func(name string, value []byte) bool) bool {
	s := &scanner{data: item}
	if s.space(); s.data[s.at] != '{' {
		return false
	}
	for s.next() {
		name := s.memberName()
		s.space()
		s.at++ // the colon
		if !f(name, s.value()) {
			break
		}
	}
	return true
}

// eachEntry calls f with the entries of a list until it returns false.
func eachEntry(list []byte, f func(value []byte) bool) {
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

// next goes on from the first bracket, or from a comma. It reports whether the object or list goes on, too.
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
			s.text()
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

// text passes over a string and returns it with its quotes.
func (s *scanner) text() []byte {
	start := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[start:s.at]
}

// memberName passes over a string and returns it decoded.
func (s *scanner) memberName() string {
	quoted := s.text()
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is a string
	return name
}
