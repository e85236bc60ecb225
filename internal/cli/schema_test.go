package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema checks values against the part of JSON Schema that docs/gpus.schema.json uses.
type schema struct {
	root map[string]any
	// met are the paths of the values that were checked.
	met map[string]bool
}

// problems are what a value has that the schema of its place does not allow.
func (s *schema) problems(of map[string]any, value any, at string) (found []string) {
	of = s.resolve(of)
	s.met[at] = true
	if allowed, given := of["enum"].([]any); given && !slices.Contains(allowed, value) {
		return []string{fmt.Sprintf("%s is %v, none of %v", at, value, allowed)}
	}
	if kind, given := of["type"]; given && !isOf(kind, value) {
		return []string{fmt.Sprintf("%s is %v, not of type %v", at, value, kind)}
	}
	switch value := value.(type) {
	case float64:
		if least, given := of["minimum"].(float64); given && value < least {
			return []string{fmt.Sprintf("%s is %v, less than %v", at, value, least)}
		}
	case []any:
		items, _ := of["items"].(map[string]any)
		for _, each := range value {
			found = append(found, s.problems(items, each, at+"[]")...)
		}
	case map[string]any:
		properties, _ := of["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if property, known := properties[name].(map[string]any); known {
				found = append(found, s.problems(property, value[name], at+"."+name)...)
			} else if of["additionalProperties"] == false {
				found = append(found, at+"."+name+" is not in the schema")
			}
		}
		required, _ := of["required"].([]any)
		for _, name := range required {
			if _, there := value[name.(string)]; !there {
				found = append(found, fmt.Sprintf("%s.%s is missing", at, name))
			}
		}
	}
	return found
}

// resolve follows a $ref.
func (s *schema) resolve(of map[string]any) map[string]any {
	if ref, ok := of["$ref"].(string); ok {
		return s.root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	return of
}

// all are the paths of the values that a schema describes.
func (s *schema) all(of map[string]any, at string) map[string]bool {
	of = s.resolve(of)
	paths := map[string]bool{at: true}
	if items, ok := of["items"].(map[string]any); ok {
		maps.Copy(paths, s.all(items, at+"[]"))
	}
	properties, _ := of["properties"].(map[string]any)
	for name, property := range properties {
		maps.Copy(paths, s.all(property.(map[string]any), at+"."+name))
	}
	return paths
}

func isOf(kind, value any) bool {
	if kinds, several := kind.([]any); several {
		return slices.ContainsFunc(kinds, func(each any) bool { return isOf(each, value) })
	}
	switch value := value.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && value == float64(int64(value))
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	}
	return false
}
