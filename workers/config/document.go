package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/strict"
)

// syntax finds the line in an error of the library.
var syntax = regexp.MustCompile(`^yaml: (?:unmarshal errors:\n  )?(?:line (\d+): )?(.*)`)

// read fills into, a pointer to a struct, from YAML, and reports all that is wrong. On
// the way YAML becomes JSON of the same shape with all scalars as text: a library that
// types them would make 1.1 of a variable's 1.10.
func (r *report) read(data []byte, into any) {
	var root, second yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	err := in.Decode(&root)
	if errors.Is(err, io.EOF) {
		return
	}
	if err == nil && in.Decode(&second) == nil {
		r.problems = []Problem{{gpumux.Problem{Message: "a second YAML document; give one"}, second.Content[0].Line}}
		return
	}
	if err == nil {
		err = root.Decode(new(any)) // finds names that are there twice
	}
	if err != nil {
		parts := syntax.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(parts[1])
		r.problems = []Problem{{gpumux.Problem{Message: parts[2]}, line}}
		return
	}
	tree := r.plain(root.Content[0], "")
	for {
		text, _ := json.Marshal(tree) // maps, lists and text always encode
		mistake := strict.Decode(text, into, strict.Text)
		if mistake == nil {
			return
		}
		r.add(mistake.Field, "%s", mistake.Message)
		if !remove(tree, mistake.Path) {
			return
		}
	}
}

// remove takes a value out of a tree, which then shows its next mistake.
func remove(tree any, path []string) bool {
	if len(path) == 0 {
		return false
	}
	name, rest := path[0], path[1:]
	switch parent := tree.(type) {
	case map[string]any:
		if len(rest) > 0 {
			return remove(parent[name], rest)
		}
		delete(parent, name)
	case []any:
		i, _ := strconv.Atoi(name)
		if len(rest) > 0 {
			return remove(parent[i], rest)
		}
		parent[i] = nil
	}
	return true
}

// plain is a node as maps, lists, text and nil. It notes the line of each field.
func (r *report) plain(n *yaml.Node, field string) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.lines[field] == 0 {
		r.lines[field] = n.Line
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, entry := range n.Content {
			list[i] = r.plain(entry, fmt.Sprintf("%s[%d]", field, i))
		}
		return list
	case n.Kind == yaml.MappingNode:
		fields := map[string]any{}
		for pair := range slices.Chunk(n.Content, 2) {
			key, value := pair[0], pair[1]
			if key.ShortTag() != "!!merge" {
				at := strict.Member(field, key.Value)
				r.lines[at] = key.Line
				fields[key.Value] = r.plain(value, at)
				continue
			}
			sources := []*yaml.Node{value}
			if value.Kind == yaml.SequenceNode {
				sources = value.Content
			}
			for _, source := range sources {
				merged, _ := r.plain(source, field).(map[string]any)
				maps.Copy(merged, fields) // what is there already wins
				fields = merged
			}
		}
		return fields
	case n.ShortTag() == "!!null":
		return nil
	}
	return n.Value
}
