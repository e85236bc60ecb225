package gpumux

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// maxProblems is how many mistakes an error lists.
const maxProblems = 20

// UnmarshalJSON takes any JSON. It leaves out what does not fit a field, and Validate
// names it.
func (in *MapInput) UnmarshalJSON(data []byte) error {
	if in.mistakes = nil; data[0] == '{' {
		in.mistakes.readFields(data, reflect.ValueOf(in).Elem(), "")
	} else {
		in.mistakes.add("input", "%s is %s; an object belongs here", text.Beginning(data), cmp.Or(words[data[0]], "a number"))
	}
	return nil
}

// problems gathers the mistakes of an input.
type problems []Problem

// add adds a mistake. One more than the error lists stands for all others.
func (p *problems) add(field, format string, args ...any) {
	if !p.full() {
		*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) full() bool { return len(*p) > maxProblems }

// about reports whether there is a mistake in a field or inside of it.
func (p problems) about(field string) bool {
	return slices.ContainsFunc(p, func(told Problem) bool {
		rest, inside := strings.CutPrefix(told.Field, field)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// err is an *InputError, or nil without mistakes.
func (p problems) err(what string) error {
	if len(p) == 0 {
		return nil
	}
	if len(p) > maxProblems {
		p = append(p[:maxProblems:maxProblems], Problem{"input", "has more mistakes than these"})
	}
	return &InputError{What: what, Problems: p}
}

// read decodes one value of valid JSON. Parts that do not fit stay zero, as mistakes.
func (p *problems) read(data json.RawMessage, to reflect.Value, field string) {
	raw, isRaw := to.Addr().Interface().(*json.RawMessage)
	_, own := to.Addr().Interface().(json.Unmarshaler)
	switch kind := to.Kind(); {
	case isRaw:
		*raw = bytes.Clone(data)
	case data[0] == 'n': // null means that the field is left out
	case kind == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		p.read(data, to.Elem(), field)
	case kind == reflect.Struct && data[0] == '{':
		p.readFields(data, to, field)
	case kind == reflect.Slice && data[0] == '[':
		p.readEntries(data, to, field)
	default:
		err := json.Unmarshal(data, to.Addr().Interface())
		var mismatch *json.UnmarshalTypeError
		switch {
		case err == nil:
		case own && !errors.As(err, &mismatch):
			p.add(field, "%v", err)
		case kind != reflect.Int && kind != reflect.Int64 || words[data[0]] != "":
			p.add(field, "%s is %s; %s belongs here", text.Beginning(data), cmp.Or(words[data[0]], "a number"), cmp.Or(wanted[kind], "a whole number"))
		case bytes.ContainsAny(data, ".eE"):
			p.add(field, "%s is not written as a whole number; leave out point and exponent", text.Beginning(data))
		default:
			p.add(field, "%s is beyond all numbers that count here", text.Beginning(data))
		}
	}
}

// readFields decodes the members of an object into the fields of a struct.
func (p *problems) readFields(data []byte, to reflect.Value, field string) {
	inside := field
	if inside != "" {
		inside += "."
	}
	fields := map[string]int{}
	var all []string
	nameOf := func(at int) string {
		name, _, _ := strings.Cut(to.Type().Field(at).Tag.Get("json"), ",")
		return name
	}
	for at := range to.NumField() {
		if name := nameOf(at); name != "" {
			all = append(all, name)
			fields[name] = at
		}
	}
	there := "; there are " + strings.Join(all, ", ")
	text.EachField(data, func(name string, value []byte) bool {
		if at, known := fields[name]; known {
			p.read(value, to.Field(at), inside+nameOf(at))
		} else {
			p.add(inside+text.Beginning([]byte(name)), "is no field%s", there)
			there = "" // is told once
		}
		return !p.full()
	})
}

// readEntries decodes a list.
func (p *problems) readEntries(data []byte, to reflect.Value, field string) {
	all, at := reflect.MakeSlice(to.Type(), 0, 0), 0
	text.EachEntry(data, func(value []byte) bool {
		if at == names.MaxEntries {
			p.add(field, "holds more than the %d entries that an input may have", names.MaxEntries)
			return false
		}
		all = reflect.Append(all, reflect.Zero(to.Type().Elem()))
		p.read(value, all.Index(at), fmt.Sprintf("%s[%d]", field, at))
		at++
		return !p.full()
	})
	to.Set(all)
}

// words name a JSON value by its first byte. All other bytes begin a number.
var words = map[byte]string{'"': "a string", '{': "an object", '[': "a list", 't': "true or false", 'f': "true or false", 'n': "nothing"}

// wanted names what a field takes. All other kinds take a whole number.
var wanted = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Slice: "a list", reflect.String: "a string", reflect.Bool: "true or false",
}
