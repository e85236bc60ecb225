package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

// conditionsOf writes the conditions of a YAML mapping as one part of a Selection.
func conditionsOf(given map[string]any) (string, error) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := squeeze(fmt.Sprint(given[name]))
		if name == "model" {
			value = "=" + value
		}
		list = append(list, name+value)
	}
	text := strings.Join(list, " ")
	if _, err := parseConditions(text); err != nil {
		return "", fmt.Errorf("devices: %w", err)
	}
	return text, nil
}

// squeeze is a name without what people leave out.
func squeeze(name string) string { return strings.ToLower(strings.Join(strings.Fields(name), "")) }

// parseConditions reads conditions such as model=H100 memory>=40GiB. A device meets them if it meets all.
func parseConditions(text string) (meets []func(Device) bool, err error) {
	const example = "write it as model=H100, memory>=40GiB or both, and in a worker's file as {model: H100, memory: \">=40GiB\"}"
	for _, word := range strings.Fields(text) {
		model, isModel := strings.CutPrefix(word, "model=")
		least, isLeast := strings.CutPrefix(word, "memory>=")
		most, isMost := strings.CutPrefix(word, "memory<=")
		switch {
		case isModel && model != "":
			meets = append(meets, func(d Device) bool { return strings.Contains(squeeze(d.Name), squeeze(model)) })
		case isLeast || isMost:
			size, err := gpumux.ParseSize(least)
			if isMost {
				size, err = gpumux.ParseSize(most)
			}
			if err != nil {
				return nil, fmt.Errorf("%q: %w; %s", word, err, example)
			}
			meets = append(meets, func(d Device) bool {
				return isLeast && d.Memory >= uint64(size) || isMost && d.Memory > 0 && d.Memory <= uint64(size)
			})
		default:
			return nil, fmt.Errorf("%q is no condition; %s", word, example)
		}
	}
	return meets, nil
}

// meeting are the GPUs and instances that meet conditions.
func (inv *Inventory) meeting(conditions string) ([]Device, error) {
	meets, err := parseConditions(conditions)
	if err != nil {
		return nil, err
	}
	found := inv.filter(func(d Device) bool {
		return d.Kind != KindCPU && d.Usable() && !slices.ContainsFunc(meets, func(meets func(Device) bool) bool { return !meets(d) })
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: none is %s; %s", ErrUnknown, conditions, inv.existing())
	}
	return found, nil
}
