package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/gpumux/gpumux"
)

// document reads a YAML file into structs. It goes on after a mistake, so all are listed, and keeps the line of each field for later
// messages. The library reads the leaves.
type document struct {
	file     string
	lines    map[string]int
	anchors  map[string]ast.Node
	problems []Problem
}

func (d *document) add(line int, field, format string, args ...any) {
	d.problems = append(d.problems, Problem{gpumux.Problem{Field: field, Message: fmt.Sprintf(format, args...)}, line})
}

// read fills into, a pointer to a struct.
func (d *document) read(data []byte, into any) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		line := 0
		if at := yaml.Error(nil); errors.As(err, &at) && at.GetToken() != nil {
			line = at.GetToken().Position.Line
		}
		d.add(line, "", "%s", plain(err))
		return
	}
	docs := slices.DeleteFunc(file.Docs, func(doc *ast.DocumentNode) bool { return doc.Body == nil })
	if len(docs) == 0 {
		return
	}
	if len(docs) > 1 {
		d.add(docs[1].Body.GetToken().Position.Line, "", "a second YAML document; give one")
		return
	}
	d.anchors = map[string]ast.Node{}
	ast.Walk(anchors(d.anchors), docs[0].Body)
	d.value(docs[0].Body, "", reflect.ValueOf(into).Elem())
}

// anchors finds what aliases refer to.
type anchors map[string]ast.Node

func (a anchors) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

func (d *document) resolve(n ast.Node) ast.Node {
	switch x := n.(type) {
	case *ast.AnchorNode:
		return d.resolve(x.Value)
	case *ast.TagNode:
		return d.resolve(x.Value)
	case *ast.AliasNode:
		if to, ok := d.anchors[x.Value.GetToken().Value]; ok {
			return d.resolve(to)
		}
	}
	return n
}

func (d *document) value(n ast.Node, path string, into reflect.Value) {
	n = d.resolve(n)
	line := n.GetToken().Position.Line
	if _, known := d.lines[path]; path != "" && !known {
		d.lines[path] = line
	}
	if n.Type() == ast.NullType {
		return
	}
	switch target := into.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		scalar, ok := n.(ast.ScalarNode)
		if !ok {
			d.add(line, path, "give one value, not %s", shape(n))
			return
		}
		if err := target.UnmarshalText([]byte(scalar.GetToken().Value)); err != nil {
			d.add(line, path, "%v", err)
		}
		return
	case yaml.InterfaceUnmarshaler:
		if err := yaml.NodeToValue(n, target); err != nil {
			name := path[strings.LastIndexByte(path, '.')+1:]
			d.add(line, path, "%s", strings.TrimPrefix(plain(err), name+": "))
		}
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.fields(n, path, into)
	case reflect.Map:
		d.entries(n, path, into)
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			d.add(line, path, "give a list, not %s", shape(n))
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list.Values), len(list.Values)))
		for i, item := range list.Values {
			d.value(item, fmt.Sprintf("%s[%d]", path, i), into.Index(i))
		}
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(n, path, into.Elem())
	default:
		d.leaf(n, path, into)
	}
}

// leaf reads text and whole numbers, the only plain values that the file has.
func (d *document) leaf(n ast.Node, path string, into reflect.Value) {
	line := n.GetToken().Position.Line
	if _, ok := n.(ast.ScalarNode); !ok {
		d.add(line, path, "give one value, not %s", shape(n))
		return
	}
	if err := yaml.NodeToValue(n, into.Addr().Interface()); err != nil || into.CanInt() && n.Type() != ast.IntegerType {
		d.add(line, path, "%q is not a whole number", n.GetToken().Value)
	}
}

// pairs lists a mapping's entries; a merge key adds those that the mapping itself lacks.
func (d *document) pairs(n ast.Node, path string) ([]*ast.MappingValueNode, bool) {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		d.add(n.GetToken().Position.Line, path, "give fields as name: value, not %s", shape(n))
		return nil, false
	}
	var own, merged []*ast.MappingValueNode
	for each := mapping.MapRange(); each.Next(); {
		if pair := each.KeyValue(); pair.Key.IsMergeKey() {
			more, _ := d.pairs(d.resolve(pair.Value), path)
			merged = append(merged, more...)
		} else {
			own = append(own, pair)
		}
	}
	for _, m := range merged {
		if !slices.ContainsFunc(own, func(o *ast.MappingValueNode) bool { return keyText(o) == keyText(m) }) {
			own = append(own, m)
		}
	}
	return own, true
}

func (d *document) fields(n ast.Node, path string, into reflect.Value) {
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
		key := keyText(pair)
		at := key
		if path != "" {
			at = path + "." + key
		}
		line := pair.Key.GetToken().Position.Line
		d.lines[at] = line
		if field, ok := known[key]; ok {
			d.value(pair.Value, at, field)
			continue
		}
		d.add(line, at, "unknown field; %s", cmp.Or(didYouMean(key, names), "the fields here are "+strings.Join(names, ", ")))
	}
}

func (d *document) entries(n ast.Node, path string, into reflect.Value) {
	pairs, ok := d.pairs(n, path)
	if !ok {
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, pair := range pairs {
		key := keyText(pair)
		at := entryPath(path, key)
		d.lines[at] = pair.Key.GetToken().Position.Line
		value := reflect.New(into.Type().Elem()).Elem()
		d.value(pair.Value, at, value)
		into.SetMapIndex(reflect.ValueOf(key), value)
	}
}

func keyText(pair *ast.MappingValueNode) string { return pair.Key.GetToken().Value }

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// entryPath is tasks.embed or tasks["sweep/*"].
func entryPath(path, key string) string {
	if bareKey.MatchString(key) {
		return path + "." + key
	}
	return fmt.Sprintf("%s[%q]", path, key)
}

func shape(n ast.Node) string {
	switch n.Type() {
	case ast.SequenceType:
		return "a list"
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	}
	return fmt.Sprintf("%q", n.GetToken().Value)
}

// plain is the library's error without its excerpt of the source.
func plain(err error) string {
	var at yaml.Error
	if errors.As(err, &at) {
		return at.GetMessage()
	}
	return err.Error()
}
