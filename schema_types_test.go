package gpumux

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// language writes the types of schemas in another language.
type language struct {
	path, begin                       string
	begins, ends                      string // of a type, by its name
	described                         string // by a description, "" where the language has no place for it
	field, optional                   string // by name and type
	any, null, text, whole, real, yes string
	list, record                      string // of a type
	literals                          func(values []string) string
}

var languages = []language{
	{
		path: "examples/typescript/gpumux.d.ts", begin: "// Made of docs/schema by `go test . -run TestSchema -update`.\n",
		begins: "\nexport interface %[1]s {\n", ends: "}\n", described: "  /** %s */\n", field: "  %s: %s;\n", optional: "  %s?: %s;\n",
		any: "unknown", null: "null", text: "string", whole: "number", real: "number", yes: "boolean", list: "Array<%s>", record: "{ [name: string]: %s }",
		literals: func(values []string) string { return strings.Join(values, " | ") },
	}, {
		path: "examples/polyglot/gpumux_types.py",
		begin: `"""Made of docs/schema by ` + "`go test . -run TestSchema -update`." + `"""

from typing import Any, Dict, List, Literal

from typing_extensions import Required, TypedDict
`,
		begins: "\n%[1]s = TypedDict(\n    \"%[1]s\",\n    {\n", ends: "    },\n    total=False,\n)\n",
		field: "        %q: Required[%s],\n", optional: "        %q: %s,\n",
		any: "Any", null: "None", text: "str", whole: "int", real: "float", yes: "bool", list: "List[%s]", record: "Dict[str, %s]",
		literals: func(values []string) string { return "Literal[" + strings.Join(values, ", ") + "]" },
	},
}

// typeName is the type of a value.
func (l language) typeName(t *testing.T, schema object) string {
	t.Helper()
	if ref, is := schema.get("$ref").(string); is {
		return ref[strings.LastIndex(ref, "/")+1:]
	}
	if either, is := schema.get("anyOf").([]object); is {
		return l.typeName(t, either[0]) + " | " + l.null
	}
	if values, is := schema.get("enum").([]any); is {
		var literals []string
		null := ""
		for _, value := range values {
			if value == nil {
				null = " | " + l.null
			} else {
				literals = append(literals, fmt.Sprintf("%q", value))
			}
		}
		return l.literals(literals) + null
	}
	var types []string
	switch known := schema.get("type").(type) {
	case nil:
		return l.any
	case string:
		types = []string{known}
	case []string:
		types = known
	}
	names := map[string]string{"null": l.null, "string": l.text, "integer": l.whole, "number": l.real, "boolean": l.yes}
	for i, name := range types {
		switch name {
		case "array":
			types[i] = fmt.Sprintf(l.list, l.typeName(t, schema.get("items").(object)))
		case "object":
			types[i] = fmt.Sprintf(l.record, l.typeName(t, schema.get("additionalProperties").(object)))
		default:
			require.Contains(t, names, name)
			types[i] = names[name]
		}
	}
	return strings.Join(types, " | ")
}

// write is the file with all types.
func (l language) write(t *testing.T) string {
	t.Helper()
	g, written := newGenerator(t), []string{}
	var text strings.Builder
	text.WriteString(l.begin)
	add := func(name string, schema object) {
		if slices.Contains(written, name) {
			return
		}
		written = append(written, name)
		fmt.Fprintf(&text, l.begins, name)
		required, _ := schema.get("required").([]string)
		for _, m := range schema.get("properties").(object) {
			value := m.value.(object)
			form := l.optional
			if slices.Contains(required, m.name) {
				form = l.field
			}
			if described, is := value.get("description").(string); is && l.described != "" {
				fmt.Fprintf(&text, l.described, described)
			}
			fmt.Fprintf(&text, form, m.name, l.typeName(t, value))
		}
		text.WriteString(l.ends)
	}
	for _, name := range []string{"input", "fault", "result", "summary", "progress"} {
		schema := g.whole(schemas[name])
		defs, _ := schema.get("$defs").(object)
		for _, m := range defs {
			add(m.name, m.value.(object))
		}
		add(schemas[name].Name(), schema)
	}
	return text.String()
}
