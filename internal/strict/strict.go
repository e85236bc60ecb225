// Package strict decodes the JSON that people write into structs. It names the first
// value that does not fit by its field, in their words.
//
// It never says whether a value makes sense. It holds no state and so never has to stop.
package strict

import (
	"bytes"
	"cmp"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpumux/gpumux/internal/text"
)

// Mistake is a value that does not fit its field. Path are the names and indices in it.
type Mistake struct {
	Field, Message string
	Path           []string
}

// maxEntries is the most entries of a list in an input, which could ask for much memory.
const maxEntries = 1 << 16

var errEntries = fmt.Errorf("is one more than the %d entries that a list may have", maxEntries)

var bounded = json.WithUnmarshalers(json.UnmarshalFromFunc(func(in *jsontext.Decoder, _ any) error {
	if kind, n := in.StackIndex(in.StackDepth()); kind == '[' && n >= maxEntries {
		return errEntries
	}
	return errors.ErrUnsupported // the default is to read it
}))

// Text is an option for JSON whose numbers and truth values are strings, too.
var Text = json.JoinOptions(json.StringifyNumbers(true), json.WithUnmarshalers(json.UnmarshalFunc(func(text []byte, to *bool) (err error) {
	if *to, err = strconv.ParseBool(strings.Trim(string(text), `"`)); err != nil {
		err = fmt.Errorf("%s is neither true nor false", text)
	}
	return err
})))

// Decode decodes JSON into a struct, which has to have all of its fields. Of equal names
// the last counts, as for other readers. Options may be those of the package json.
func Decode(data []byte, into any, options ...json.Options) *Mistake {
	options = slices.Concat([]json.Options{bounded, json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true)}, options)
	err := json.Unmarshal(data, into, options...)
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		path := slices.Collect(semantic.JSONPointer.Tokens())
		return &Mistake{fieldOf(path), messageOf(semantic), path}
	} else if err != nil {
		return &Mistake{Message: err.Error()}
	}
	return nil
}

func fieldOf(path []string) (field string) {
	for _, name := range path {
		if _, err := strconv.Atoi(name); err == nil {
			field += "[" + name + "]"
		} else {
			field = Member(field, name)
		}
	}
	return field
}

var bareName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Member is the field of a name in another: tasks.embed, or tasks["sweep/*"].
func Member(field, name string) string {
	switch name = text.Beginning([]byte(name)); {
	case !bareName.MatchString(name):
		return fmt.Sprintf("%s[%q]", field, name)
	case field == "":
		return name
	}
	return field + "." + name
}

func messageOf(e *json.SemanticError) string {
	pointer := reflect.PointerTo(e.GoType)
	custom := e.GoType == reflect.TypeFor[*bool]() || pointer.Implements(reflect.TypeFor[stdjson.Unmarshaler]()) ||
		e.JSONKind == '"' && pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	whole := e.GoType.Kind() == reflect.Int || e.GoType.Kind() == reflect.Int64
	start := text.Beginning(e.JSONValue)
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "is no field; there are " + strings.Join(fieldsOf(e.GoType), ", ")
	case e.Err != nil && custom, errors.Is(e.Err, errEntries):
		return e.Err.Error()
	case whole && e.JSONKind == '0' && bytes.ContainsAny(e.JSONValue, ".eE"):
		return start + " is not written as a whole number; leave out point and exponent"
	case whole && e.JSONKind == '0':
		return start + " is beyond all numbers that count here"
	}
	return strings.TrimSpace(fmt.Sprintf("%s is %s; %s belongs here", start, words[e.JSONKind], cmp.Or(wanted[e.GoType.Kind()], "a whole number")))
}

func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// words name a JSON value by how it begins, wanted what a field takes.
var (
	words = map[jsontext.Kind]string{
		'"': "a string", '{': "an object", '[': "a list", 't': "true or false", 'f': "true or false", 'n': "nothing", '0': "a number",
	}
	wanted = map[reflect.Kind]string{
		reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "a list", reflect.String: "a string", reflect.Bool: "true or false",
		reflect.Float64: "a number",
	}
)
