package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpumux/gpumux"
)

// document reads a YAML file into structs. It goes on after a mistake, so all are listed,
// and keeps the line of each field for later messages. The library reads the leaves.
type document struct {
	file     string
	lines    map[string]int
	problems []Problem
}

func (d *document) add(line int, field, format string, args ...any) {
	d.problems = append(d.problems, Problem{gpumux.Problem{Field: field, Message: fmt.Sprintf(format, args...)}, line})
}

// syntax finds the line in an error of the library.
var syntax = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// read fills into, a pointer to a struct.
func (d *document) read(data []byte, into any) {
	var first, second yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	err := in.Decode(&first)
	if err == nil {
		if err = in.Decode(&second); err == nil {
			d.add(second.Content[0].Line, "", "a second YAML document; give one")
			return
		}
	}
	switch parts := syntax.FindStringSubmatch(fmt.Sprint(err)); {
	case parts != nil:
		line, _ := strconv.Atoi(parts[1])
		d.add(line, "", "%s", parts[2])
	case !errors.Is(err, io.EOF):
		d.add(0, "", "%v", err)
	case len(first.Content) > 0:
		d.value(first.Content[0], "", reflect.ValueOf(into).Elem())
	}
}

func (d *document) value(n *yaml.Node, path string, into reflect.Value) {
	n = resolved(n)
	if _, known := d.lines[path]; path != "" && !known {
		d.lines[path] = n.Line
	}
	if n.ShortTag() == "!!null" {
		return
	}
	switch target := into.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		if !d.scalar(n, path) {
			return
		}
		if err := target.UnmarshalText([]byte(n.Value)); err != nil {
			d.add(n.Line, path, "%v", err)
		}
		return
	case interface{ UnmarshalYAML(func(any) error) error }:
		if err := target.UnmarshalYAML(n.Decode); err != nil {
			name := path[strings.LastIndexByte(path, '.')+1:]
			d.add(n.Line, path, "%s", strings.TrimPrefix(err.Error(), name+": "))
		}
		return
	case interface{ setText(text string) }: // a mapping, or its first field alone
		if n.Kind == yaml.ScalarNode {
			target.setText(n.Value)
			return
		}
	}
	switch into.Kind() {
	case reflect.Bool:
		if d.scalar(n, path) && n.Decode(into.Addr().Interface()) != nil {
			d.add(n.Line, path, "%q is neither true nor false", n.Value)
		}
	case reflect.Struct:
		d.fields(n, path, into)
	case reflect.Map:
		d.entries(n, path, into)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.add(n.Line, path, "give a list, not %s", shape(n))
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(item, fmt.Sprintf("%s[%d]", path, i), into.Index(i))
		}
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(n, path, into.Elem())
	default: // text and whole numbers, the only plain values that the file has
		if !d.scalar(n, path) {
			return
		}
		if err := n.Decode(into.Addr().Interface()); err != nil || into.CanInt() && n.ShortTag() != "!!int" {
			d.add(n.Line, path, "%q is not a whole number", n.Value)
		}
	}
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// scalar reports whether a node is one value, or adds the problem.
func (d *document) scalar(n *yaml.Node, path string) bool {
	if n.Kind != yaml.ScalarNode {
		d.add(n.Line, path, "give one value, not %s", shape(n))
	}
	return n.Kind == yaml.ScalarNode
}

type pair struct{ key, value *yaml.Node }

// pairs lists a mapping's entries; a merge key adds those that the mapping itself lacks.
func (d *document) pairs(n *yaml.Node, path string) (own []pair, ok bool) {
	if n.Kind != yaml.MappingNode {
		d.add(n.Line, path, "give fields as name: value, not %s", shape(n))
		return nil, false
	}
	find := func(key string) int { return slices.IndexFunc(own, func(p pair) bool { return p.key.Value == key }) }
	var merged []pair
	for each := range slices.Chunk(n.Content, 2) {
		key := each[0].Value
		if each[0].ShortTag() == "!!merge" {
			more, _ := d.pairs(resolved(each[1]), path)
			merged = append(merged, more...)
		} else if i := find(key); i >= 0 {
			d.add(each[0].Line, path, "%s is there twice, first in line %d", key, own[i].key.Line)
		} else {
			own = append(own, pair{each[0], each[1]})
		}
	}
	for _, m := range merged {
		if find(m.key.Value) < 0 {
			own = append(own, m)
		}
	}
	return own, true
}

func (d *document) fields(n *yaml.Node, path string, into reflect.Value) {
	pairs, ok := d.pairs(n, path)
	if !ok {
		return
	}
	known := map[string]reflect.Value{}
	for i := range into.NumField() {
		if name := into.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
			known[name] = into.Field(i)
		}
	}
	names := slices.Sorted(maps.Keys(known))
	for _, pair := range pairs {
		key := pair.key.Value
		at := key
		if path != "" {
			at = path + "." + key
		}
		line := pair.key.Line
		d.lines[at] = line
		if field, ok := known[key]; ok {
			d.value(pair.value, at, field)
			continue
		}
		d.add(line, at, "unknown field; the fields here are %s", strings.Join(names, ", "))
	}
}

func (d *document) entries(n *yaml.Node, path string, into reflect.Value) {
	pairs, ok := d.pairs(n, path)
	if !ok {
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, pair := range pairs {
		key := pair.key.Value
		at := entryPath(path, key)
		d.lines[at] = pair.key.Line
		value := reflect.New(into.Type().Elem()).Elem()
		d.value(pair.value, at, value)
		into.SetMapIndex(reflect.ValueOf(key), value)
	}
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// entryPath is tasks.embed or tasks["sweep/*"].
func entryPath(path, key string) string {
	if bareKey.MatchString(key) {
		return path + "." + key
	}
	return fmt.Sprintf("%s[%q]", path, key)
}

func shape(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return fmt.Sprintf("%q", n.Value)
}
