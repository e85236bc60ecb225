package gpumux

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/schema and the types of examples in other languages anew")

// schemas are the files of docs/schema.
var schemas = map[string]reflect.Type{
	"input": reflect.TypeFor[MapInput](), "summary": reflect.TypeFor[Summary](), "progress": reflect.TypeFor[Progress](),
	"result": reflect.TypeFor[Result](), "fault": reflect.TypeFor[Fault](),
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", m.name)
		value := json.NewEncoder(&b)
		value.SetEscapeHTML(false)
		if err := value.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// get is the value of a member, or nil.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// limits are those of Validate that a schema can say, by the field of the input. Lengths
// in a schema count characters, those of Validate bytes.
var limits = map[string]object{
	"task": {{"minLength", 1}, {"maxLength", MaxName}}, "edition": {{"maxLength", MaxName}},
	"items": {{"maxItems", InlineItems}}, "source": {{"maxLength", MaxKey}}, "output": {{"maxLength", MaxKey}},
	"ladder": {{"maxItems", MaxRungs}}, "chunk": {{"minimum", 0}, {"maximum", MaxChunk}}, "window": {{"minimum", 0}, {"maximum", MaxWindow}},
	"attempts": {{"minimum", 0}, {"maximum", MaxAttempts}}, "key": {{"maxLength", MaxName}},
	"priority": {{"minimum", 0}, {"maximum", 5}}, "fairnessKey": {{"maxLength", 64}}, "fairnessWeight": {{"minimum", 0}, {"maximum", 1000}},
}

// sources is that exactly one of items, source and range is given. Null gives nothing.
func sources() (one []object) {
	for _, m := range []member{
		{"items", object{{"type", "array"}}}, {"source", object{{"type", "string"}, {"minLength", 1}}}, {"range", object{{"type", "object"}}},
	} {
		one = append(one, object{{"required", []string{m.name}}, {"properties", object{m}}})
	}
	return one
}

// generator writes schemas of Go types.
type generator struct {
	t     *testing.T
	docs  *doc.Package
	input bool // what comes in may be null, and durations and tolerances have several forms
	defs  object
}

func newGenerator(t *testing.T) *generator {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			require.NoError(t, err)
			parsed = append(parsed, file)
		}
	}
	docs, err := doc.NewFromFiles(files, parsed, "github.com/gpumux/gpumux", doc.AllDecls)
	require.NoError(t, err)
	return &generator{t: t, docs: docs}
}

// whole is the schema of a file.
func (g *generator) whole(typ reflect.Type) object {
	g.input, g.defs = typ == schemas["input"], nil
	fields := g.structOf(typ)
	if g.input {
		fields = append(fields, member{"oneOf", sources()})
	}
	all := append(object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", typ.Name()}}, fields...)
	if g.defs != nil {
		all = append(all, member{"$defs", g.defs})
	}
	return all
}

// schema is the schema of a value in a field.
func (g *generator) schema(typ reflect.Type) object {
	switch typ {
	case reflect.TypeFor[json.RawMessage]():
		return nil
	case reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[Duration]():
		if g.input {
			return object{{"type", []string{"number", "string"}}, {"pattern", `^[-+]?(\d+(\.\d*)?|\.\d+|(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+)$`}}
		}
		written, err := json.Marshal(Duration(time.Second))
		require.NoError(g.t, err)
		if written[0] == '"' {
			return object{{"type", "string"}}
		}
		return object{{"type", "number"}}
	case reflect.TypeFor[Tolerance]():
		return object{{"type", []string{"integer", "string"}}, {"minimum", 0}, {"pattern", `^(\d+|\d+(\.\d+)?%)?$`}}
	case reflect.TypeFor[Peaks]():
		return g.ref(typ, reflect.TypeFor[peaksJSON]())
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return g.schema(typ.Elem())
	case reflect.Struct:
		return g.ref(typ, typ)
	case reflect.Slice:
		return object{{"type", "array"}, {"items", g.schema(typ.Elem())}}
	case reflect.Map:
		return object{{"type", "object"}, {"propertyNames", g.schema(typ.Key())}, {"additionalProperties", g.schema(typ.Elem())}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int64:
		return object{{"type", "integer"}}
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.String:
		if typ.PkgPath() != "" {
			return object{{"enum", g.constants(typ.Name())}}
		}
		return object{{"type", "string"}}
	}
	require.Fail(g.t, "no schema", "%s", typ)
	return nil
}

// ref puts the fields of a struct under a name of its own.
func (g *generator) ref(named, fields reflect.Type) object {
	if g.defs.get(named.Name()) == nil {
		g.defs = append(g.defs, member{named.Name(), object{}}) // a fault in a result in a summary comes once
		at := len(g.defs) - 1
		g.defs[at].value = g.structOf(fields)
	}
	return object{{"$ref", "#/$defs/" + named.Name()}}
}

// structOf is the schema of a struct's JSON.
func (g *generator) structOf(typ reflect.Type) object {
	described, names := g.fields(typ)
	var properties object
	required := []string{}
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		value := g.schema(field.Type)
		if g.input && typ == schemas["input"] {
			value = append(value, limits[name]...)
		}
		if optional := strings.HasPrefix(options, "omit") || g.input && name != "task"; !optional {
			required = append(required, name)
		} else if g.input && value != nil {
			value = nullable(value)
		}
		if text := g.words(described[field.Name], names); text != "" {
			value = append(object{{"description", text}}, value...)
		}
		properties = append(properties, member{name, value})
	}
	all := object{{"type", "object"}, {"properties", properties}}
	if len(required) > 0 {
		all = append(all, member{"required", required})
	}
	if g.input {
		all = append(all, member{"additionalProperties", false})
	}
	return all
}

// nullable lets a field be null, which stands for one that is left out.
func nullable(value object) object {
	value = slices.Clone(value)
	for i, m := range value {
		switch is := m.value.(type) {
		case string:
			if m.name == "type" {
				value[i].value = []string{is, "null"}
			} else if m.name == "$ref" {
				return object{{"anyOf", []object{value, {{"type", "null"}}}}}
			}
		case []string:
			if m.name == "type" {
				value[i].value = append(slices.Clone(is), "null")
			}
		case []any:
			value[i].value = append(slices.Clone(is), "", nil)
		}
	}
	return value
}

// constants are the values of the constants of a type.
func (g *generator) constants(typ string) (values []any) {
	for _, t := range g.docs.Types {
		if t.Name != typ {
			continue
		}
		for _, group := range t.Consts {
			for _, spec := range group.Decl.Specs {
				for _, value := range spec.(*ast.ValueSpec).Values {
					text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
					require.NoError(g.t, err)
					values = append(values, text)
				}
			}
		}
	}
	require.NotEmpty(g.t, values, "constants of %s", typ)
	return values
}

// fields are the comments of a struct's fields, and what JSON calls the fields. A field
// without a comment may be one that the comment before it speaks of.
func (g *generator) fields(typ reflect.Type) (described, names map[string]string) {
	described, names = map[string]string{}, map[string]string{}
	for _, t := range g.docs.Types {
		if t.Name != typ.Name() {
			continue
		}
		before := ""
		for _, field := range t.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
			text := strings.Join(strings.Fields(field.Doc.Text()), " ")
			for _, name := range field.Names {
				if text == "" && regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(before) {
					text = before
				}
				described[name.Name] = text
				if field.Tag != nil {
					tag, err := strconv.Unquote(field.Tag.Value)
					require.NoError(g.t, err)
					names[name.Name], _, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
				}
			}
			before = text
		}
	}
	return described, names
}

// goWords are what comments say in Go's words, and a schema says otherwise.
var goWords = strings.NewReplacer("InlineItems", strconv.Itoa(InlineItems), "InlineBytes", Size(InlineBytes).String(), "MaxArg", Size(MaxArg).String(),
	"MapInput.Key and WithItem", "key and withItem of the input", " See also ValuesOf and FailedOf.", "", "a MapInput", "the input", "a Result", "a result", "the Summary", "the summary")

var (
	inputField = regexp.MustCompile(`\bMapInput\.(\w+)`)
	capital    = regexp.MustCompile(`\b[A-Z]\w*`)
)

// words are a comment with the fields' names in JSON.
func (g *generator) words(text string, names map[string]string) string {
	text = inputField.ReplaceAllStringFunc(goWords.Replace(text), func(found string) string {
		return strings.ToLower(found[9:10]) + found[10:] + " of the input"
	})
	return capital.ReplaceAllStringFunc(text, func(found string) string { return cmp.Or(names[found], found) })
}

// generated are the files by their paths.
func generated(t *testing.T) map[string]string {
	t.Helper()
	g, files := newGenerator(t), map[string]string{}
	for name, typ := range schemas {
		text, err := json.Marshal(g.whole(typ))
		require.NoError(t, err)
		var lines bytes.Buffer
		require.NoError(t, json.Indent(&lines, text, "", "  "))
		files["docs/schema/"+name+".json"] = lines.String() + "\n"
	}
	for _, l := range languages {
		files[l.path] = l.write(t)
	}
	return files
}

// Schemas, and the types made of them, are those of the Go types. -update writes them.
func TestSchema_IsGenerated(t *testing.T) {
	for path, text := range generated(t) {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(have), text, "go test . -run TestSchema -update")
		require.NotRegexp(t, `"description": .*\b(MapInput|ValuesOf|Inline[A-Z]\w+|Max[A-Z]\w+)\b`, text, "give goWords the word")
	}
}

// check is one value and the schema that it is held against.
type check struct {
	Schema string          `json:"schema"`
	Value  json.RawMessage `json:"value"`
}

const validator = `
import json, sys
from jsonschema import Draft202012Validator
schemas, checks = json.load(sys.stdin)
for schema in schemas.values():
    Draft202012Validator.check_schema(schema)
validators = {name: Draft202012Validator(schema) for name, schema in schemas.items()}
json.dump(["; ".join(e.json_path + ": " + e.message for e in validators[c["schema"]].iter_errors(c["value"])) for c in checks], sys.stdout)
`

// validate holds values against schemas with jsonschema for Python. What is wrong with
// one is text.
func validate(t *testing.T, checks []check) (wrong []string) {
	t.Helper()
	all := map[string]json.RawMessage{}
	for path, text := range generated(t) {
		if name, is := strings.CutPrefix(path, "docs/schema/"); is {
			all[strings.TrimSuffix(name, ".json")] = json.RawMessage(text)
		}
	}
	input, err := json.Marshal([]any{all, checks})
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("GPUMUX_TEST_PYTHON"), ".venv/bin/python"), "-c", validator)
	command.Stdin = bytes.NewReader(input)
	out, err := command.Output()
	require.NoError(t, err, "make venv installs jsonschema; %s", stderrOf(err))
	require.NoError(t, json.Unmarshal(out, &wrong))
	require.Len(t, wrong, len(checks))
	return wrong
}

func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}

// fill sets every field that JSON has.
func fill(value reflect.Value) {
	switch value.Interface().(type) {
	case json.RawMessage:
		value.SetBytes([]byte(`{"any":[1,"two",null]}`))
		return
	case time.Time:
		value.Set(reflect.ValueOf(time.Unix(1, 5)))
		return
	case Peaks:
		value.Addr().Interface().(*Peaks).Add(1 << 30)
		value.Addr().Interface().(*Peaks).Budget, value.Addr().Interface().(*Peaks).GPUs = 2<<30, 1
		return
	case FaultKind:
		value.SetString(string(FaultCrash))
		return
	case Phase:
		value.SetString(string(PhaseMerging))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem())
	case reflect.Struct:
		for i := range value.NumField() {
			fill(value.Field(i))
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		fill(value.Index(0))
		fill(value.Index(1))
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(reflect.ValueOf(FaultCrash), reflect.ValueOf(int64(3)))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int, reflect.Int64:
		value.SetInt(1_500_000_000)
	case reflect.Float64:
		value.SetFloat(1.5)
	case reflect.String:
		value.SetString("text")
	}
}

// What Go writes is what the schemas of answers say, with every field and with none.
func TestSchema_TakesWhatGoWrites(t *testing.T) {
	var checks []check
	for name, typ := range schemas {
		if name == "input" {
			continue
		}
		for _, fills := range []bool{true, false} {
			value := reflect.New(typ)
			if fills {
				fill(value.Elem())
			} else if kind := value.Elem().FieldByName("Kind"); kind.IsValid() {
				kind.SetString(string(FaultCrash))
			} else if phase := value.Elem().FieldByName("Phase"); phase.IsValid() {
				phase.SetString(string(PhaseDone))
			}
			text, err := json.Marshal(value.Interface())
			require.NoError(t, err)
			checks = append(checks, check{name, text})
		}
	}
	for i, wrong := range validate(t, checks) {
		require.Empty(t, wrong, "%s", checks[i].Value)
	}
}

// Names and types of random inputs are right by the schema where they are by Validate.
// Validate has rules beyond a schema's.
func TestSchema_AgreesWithValidate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{`null`, `true`, `0`, `1`, `-1`, `7`, `2.5`, `70000`, `1000000`, `""`, `"gpu"`, `"90s"`, `"1h2m"`, `"5%"`, `"10"`, `"fresh"`,
		`"x y"`, `"-3s"`, `"3 s"`, `[]`, `["gpu"]`, `["gpu", 1]`, `[null]`, `{}`, `{"start":0,"end":9}`, `{"start":"0"}`, `{"start":0,"step":2}`,
		strconv.Quote(strings.Repeat("a", 5000))}
	names := []string{"Task", "retries", "map_id", ""}
	for _, field := range reflect.VisibleFields(schemas["input"]) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	var checks []check
	for range 4000 {
		fields := map[string]json.RawMessage{"task": json.RawMessage(`"t"`)}
		fields[[]string{"items", "range", "source"}[random.IntN(3)]] = json.RawMessage([]string{`[1,"two"]`, `{"start":0,"end":9}`, `"a.jsonl"`}[random.IntN(3)])
		for range random.IntN(3) {
			fields[names[random.IntN(len(names))]] = json.RawMessage(values[random.IntN(len(values))])
		}
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		checks = append(checks, check{"input", text})
	}
	good := 0
	for i, wrong := range validate(t, checks) {
		var in MapInput
		require.NoError(t, json.Unmarshal(checks[i].Value, &in))
		err := in.Validate()
		if wrong != "" {
			require.Error(t, err, "%s by the schema: %s", checks[i].Value, wrong)
		}
		if in.mistake != nil {
			require.NotEmpty(t, wrong, "%s by Validate: %v", checks[i].Value, err)
		}
		if err == nil {
			good++
		}
	}
	require.Greater(t, good, 500)
	require.Less(t, good, 3500)
}
