package gpumux

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits on any input. They are checked before the input takes memory.
const (
	// maxInput is the most bytes of an input; Temporal servers take 2 MiB unless told otherwise.
	maxInput = 4 << 20
	// maxEntries is the most entries that all lists of an input hold together.
	maxEntries = 1 << 18
	// mostProblems is how many mistakes an error lists.
	mostProblems = 20
)

// Decode reads an input from JSON. The error is an *InputError with every mistake: values of the wrong type, fields that do not exist,
// and what the input's own Validate finds. Reading takes memory in proportion to the data.
func Decode[In interface{ Validate() error }](data []byte, in *In) error {
	var p problems
	if len(data) > maxInput {
		p.add("input", "has %s, more than the %s that travel inline; put the items in a file and give source", Size(len(data)), Size(maxInput))
		return p.err("input")
	}
	if !json.Valid(data) {
		var broken *json.SyntaxError
		errors.As(json.Unmarshal(data, new(json.RawMessage)), &broken)
		p.add("input", "is not JSON: byte %d of %d makes no sense", broken.Offset, len(data))
		return p.err("input")
	}
	mended := data
	if _, own := any(in).(json.Unmarshaler); !own { // one that decodes itself keeps its mistakes for Validate
		mended, p = shape(data, reflect.TypeFor[In]())
	}
	if err := json.Unmarshal(mended, in); err != nil && len(p) == 0 {
		p.add("input", "does not have the shape that belongs here")
	}
	err := (*in).Validate()
	if len(p) == 0 {
		return err
	}
	var also *InputError
	if p.about("input") || !errors.As(err, &also) {
		return p.err("input")
	}
	for _, problem := range also.Problems { // a field of the wrong type counts as missing there
		if !p.about(problem.Field) {
			p = append(p, problem)
		}
	}
	return p.err(also.What)
}

// problems gathers the mistakes of an input.
type problems []Problem

// add adds a mistake. One more than the error lists stands for all others.
func (p *problems) add(field, format string, args ...any) {
	if len(*p) <= mostProblems {
		*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
	}
}

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
	if len(p) > mostProblems {
		p = append(p[:mostProblems:mostProblems], Problem{"input", "has more mistakes than these"})
	}
	return &InputError{What: what, Problems: p}
}

// shape compares valid JSON with a type. It returns the JSON with null in place of each value that does not fit, so that it can be
// decoded, and the mistakes.
func shape(data []byte, t reflect.Type) ([]byte, problems) {
	s := &shaper{data: data, left: maxEntries}
	if s.space(); s.data[s.at] == 'n' {
		s.add("input", "is null; %s belongs here", wanted(t.Kind()))
	} else {
		s.value(t, "")
	}
	if len(s.cuts) == 0 {
		return data, s.problems
	}
	var mended []byte
	from := 0
	for _, cut := range s.cuts {
		mended = append(append(mended, data[from:cut.start]...), "null"...)
		from = cut.end
	}
	return append(mended, data[from:]...), s.problems
}

// shaper walks valid JSON once.
type shaper struct {
	problems
	data []byte
	at   int
	// cuts are the values that do not fit, in order and disjoint.
	cuts []struct{ start, end int }
	// left is how many more entries lists may hold.
	left int
}

func (s *shaper) space() {
	for s.at < len(s.data) && strings.IndexByte(" \t\r\n", s.data[s.at]) >= 0 {
		s.at++
	}
}

// skip passes over a value and returns it.
func (s *shaper) skip() []byte {
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
func (s *shaper) text() []byte {
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
func (s *shaper) memberName() string {
	quoted := s.text()
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is a string
	return name
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

// value compares the value that begins here with a type.
func (s *shaper) value(t reflect.Type, field string) {
	s.space()
	if s.data[s.at] == 'n' || t == rawMessage { // null means that the field is left out
		s.skip()
		return
	}
	start := s.at
	first := s.data[s.at]
	var into any
	if p := reflect.PointerTo(t); p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		into = reflect.New(t).Interface()
	}
	switch kind := t.Kind(); {
	case into != nil:
		s.judge(s.skip(), into, field, start)
	case kind == reflect.Pointer:
		s.value(t.Elem(), field)
	case kind == reflect.Struct && first == '{', kind == reflect.Map && first == '{':
		s.members(t, field)
	case kind == reflect.Slice && first == '[':
		s.entries(t.Elem(), field)
	case kind == reflect.String && first == '"', kind == reflect.Bool && (first == 't' || first == 'f'):
		s.skip()
	case (kind == reflect.Int || kind == reflect.Int64) && (first == '-' || first >= '0' && first <= '9'):
		number := s.skip()
		if _, err := strconv.ParseInt(string(number), 10, t.Bits()); errors.Is(err, strconv.ErrRange) {
			s.wrong(start, field, "%s is beyond all numbers that count here", excerpt(number))
		} else if err != nil {
			s.wrong(start, field, "%s is not written as a whole number; leave out point and exponent", excerpt(number))
		}
	default:
		got := s.skip()
		s.wrong(start, field, "%s is %s; %s belongs here", excerpt(got), cmp.Or(words[first], "a number"), wanted(kind))
	}
}

// judge lets a type read its value itself.
func (s *shaper) judge(value []byte, into any, field string, start int) {
	if value[0] == '[' {
		if s.left -= bytes.Count(value, []byte{','}); s.left < 0 {
			s.tooMany(start, field)
			return
		}
	}
	err := json.Unmarshal(value, into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch):
		s.wrong(start, field, "%s does not have the shape that belongs here", excerpt(value))
	case err != nil:
		s.wrong(start, field, "%v", err)
	}
}

// wrong cuts out the value from start to here.
func (s *shaper) wrong(start int, field, format string, args ...any) {
	if field == "" {
		field = "input"
	}
	s.add(field, format, args...)
	for n := len(s.cuts); n > 0 && s.cuts[n-1].start >= start; n = len(s.cuts) {
		s.cuts = s.cuts[:n-1]
	}
	s.cuts = append(s.cuts, struct{ start, end int }{start, s.at})
}

// members compares the members of an object with the fields of a struct, or with the values of a map.
func (s *shaper) members(t reflect.Type, field string) {
	inside := field
	if inside != "" {
		inside += "."
	}
	start := s.at
	var known []member
	if t.Kind() == reflect.Struct {
		known = membersOf(t)
	}
	for s.at++; ; {
		if s.space(); s.data[s.at] == '}' {
			s.at++
			return
		}
		if s.data[s.at] == ',' {
			s.at++
			s.space()
		}
		name := s.memberName()
		s.space()
		s.at++ // the colon
		if t.Kind() == reflect.Map {
			if s.left--; s.left < 0 {
				s.tooMany(start, field)
				return
			}
			s.value(t.Elem(), inside+excerpt([]byte(name)))
			continue
		}
		at := slices.IndexFunc(known, func(m member) bool { return strings.EqualFold(m.name, name) })
		if at < 0 {
			if s.skip(); len(s.problems) <= mostProblems {
				s.add(inside+excerpt([]byte(name)), "is no field; there are %s", namesOf(known))
			}
			continue
		}
		s.value(known[at].kind, inside+known[at].name)
	}
}

func (s *shaper) entries(t reflect.Type, field string) {
	start := s.at
	s.at++
	for i := 0; ; i++ {
		if s.space(); s.data[s.at] == ',' {
			s.at++
			s.space()
		}
		if s.data[s.at] == ']' {
			s.at++
			return
		}
		if s.left--; s.left < 0 {
			s.tooMany(start, field)
			return
		}
		if t == rawMessage {
			s.skip()
			continue
		}
		s.value(t, field+"["+strconv.Itoa(i)+"]")
	}
}

// tooMany cuts out a list that is too long.
func (s *shaper) tooMany(start int, field string) {
	s.at = start
	s.skip()
	s.wrong(start, field, "holds more than the %d entries that an input may have", maxEntries)
}

// member is a field of a struct as JSON names it.
type member struct {
	name string
	kind reflect.Type
}

var memberCache sync.Map // []member by reflect.Type

func membersOf(t reflect.Type) []member {
	if found, ok := memberCache.Load(t); ok {
		return found.([]member)
	}
	var members []member
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		members = append(members, member{name, f.Type})
	}
	memberCache.Store(t, members)
	return members
}

func namesOf(members []member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.name)
	}
	return strings.Join(all, ", ")
}

// words name a JSON value by its first byte. All other bytes begin a number.
var words = map[byte]string{'"': "a string", '{': "an object", '[': "a list", 't': "true or false", 'f': "true or false"}

func wanted(k reflect.Kind) string {
	switch k {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number"
}

// excerpt is the beginning of a value, for messages.
func excerpt(value []byte) string {
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
