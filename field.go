package gpumux

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// FieldOf is the value of a field of an item, which is valid JSON: the last one where the item repeats it, as it is for the readers of JSON
// that tasks have. It is nil where the item is no object or lacks the field.
func FieldOf(item json.RawMessage, name string) (found json.RawMessage) {
	eachField(item, func(field string, value []byte) {
		if field == name {
			found = value
		}
	})
	return found
}

// CheckField returns why a field cannot be the key of items, as the first of them tells, or nil.
func CheckField(first json.RawMessage, name string) error {
	const shown = 20
	var names []string
	if !eachField(first, func(field string, _ []byte) { names = append(names, field) }) {
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

// eachField calls f with the fields of an object. It reports whether the item is an object.
func eachField(item []byte, f func(name string, value []byte)) bool {
	s := &shaper{data: item}
	if s.space(); s.data[s.at] != '{' {
		return false
	}
	for s.at++; ; {
		switch s.space(); s.data[s.at] {
		case '}':
			return true
		case ',':
			s.at++
			s.space()
		}
		name := s.memberName()
		s.space()
		s.at++ // the colon
		f(name, s.skip())
	}
}
