package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// Selection names devices as a pool's `devices` does: all, cpu, an index (0), a MIG
// instance (0:1), the start of a UUID, or conditions (model=H100 memory>=40GiB). In a
// worker's file it is a value or a list; conditions are a mapping: {model: H100, memory:
// ">=40GiB"}.
type Selection []string

// UnmarshalJSON reads one value or a list.
func (s *Selection) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	*s = (*s)[:0]
	for _, item := range items {
		switch x := item.(type) {
		case string:
			*s = append(*s, strings.TrimSpace(x))
		case map[string]any:
			text, err := conditionsOf(x)
			if err != nil {
				return err
			}
			*s = append(*s, text)
		default:
			return fmt.Errorf("%v is neither a number nor a name; give all, cpu, indices such as [0, 1] or UUIDs", item)
		}
	}
	return nil
}

// Select resolves a selection to devices that work can run on, in the order given, each
// once. A GPU in MIG mode stands for its instances.
func (inv *Inventory) Select(s Selection) ([]Device, error) {
	if len(s) == 0 {
		return nil, fmt.Errorf("devices: nothing selected; give all, cpu, indices such as [0, 1] or UUIDs")
	}
	var out []Device
	for _, want := range s {
		found, err := inv.match(want)
		if err != nil {
			return nil, fmt.Errorf("devices: %w", err)
		}
		for _, d := range found {
			if !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

func (inv *Inventory) match(want string) ([]Device, error) {
	want = strings.TrimSpace(want)
	switch strings.ToLower(want) {
	case "":
		return nil, fmt.Errorf("an empty name fits no device; %s", inv.existing())
	case "all":
		all := inv.filter(func(d Device) bool { return d.Kind != KindCPU && d.Usable() })
		switch {
		case len(all) > 0:
			return all, nil
		case inv.filter(func(d Device) bool { return d.MIG }) != nil:
			return nil, errors.New(noInstances)
		}
		return nil, fmt.Errorf("there is no GPU on this host: %s; to run on the processor write devices: cpu", cmp.Or(inv.Reason(), "none is listed"))
	case "cpu":
		return inv.filter(func(d Device) bool { return d.Kind == KindCPU }), nil
	}
	if strings.Contains(want, "=") {
		return inv.meeting(want)
	}
	hits := inv.filter(fits(want))
	if len(hits) > 1 {
		return nil, fmt.Errorf("%q fits %d devices (%s); give more of the UUID", want, len(hits), names(hits))
	}
	if len(hits) == 0 {
		return nil, fmt.Errorf("%w %q: %s", ErrUnknown, want, inv.existing())
	}
	if hits[0].Usable() {
		return hits, nil
	}
	parts := inv.filter(func(d Device) bool { return d.Parent == hits[0].UUID })
	if len(parts) == 0 {
		return nil, fmt.Errorf("GPU %s is in MIG mode but has no instances to use; %s", hits[0], hintMIG)
	}
	return parts, nil
}

// fits makes the test for an index, an index:instance or the start of a UUID.
func fits(want string) func(Device) bool {
	if i, err := strconv.Atoi(want); err == nil {
		return func(d Device) bool { return d.Kind == KindGPU && d.Index == i }
	}
	if g, m, ok := strings.Cut(want, ":"); ok {
		i, err1 := strconv.Atoi(g)
		n, err2 := strconv.Atoi(m)
		if err1 == nil && err2 == nil {
			return func(d Device) bool { return d.Kind == KindMIG && d.Index == i && d.Instance == n }
		}
	}
	low := strings.ToLower(want)
	return func(d Device) bool { return strings.HasPrefix(strings.ToLower(d.UUID), low) }
}

const hintMIG = "create them (nvidia-smi mig -cgi <profile> -C) or switch MIG off (nvidia-smi -mig 0)"

const noInstances = "every GPU is in MIG mode and has no instances to use; " + hintMIG

func (inv *Inventory) filter(match func(Device) bool) []Device {
	var out []Device
	for _, d := range inv.list {
		if match(d) {
			out = append(out, d)
		}
	}
	return out
}

func (inv *Inventory) existing() string { return "this host has " + names(inv.list) }

func names(devices []Device) string {
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.String()
	}
	return strings.Join(out, ", ")
}

// visible keeps what CUDA sees with this CUDA_VISIBLE_DEVICES: names up to the first that
// fits nothing, and the GPU of a kept MIG instance. Indices are NVML's, in PCI order.
func visible(devices []Device, spec string) []Device {
	kept := map[string]bool{}
	for want := range strings.SplitSeq(spec, ",") {
		want = strings.TrimSpace(want)
		test := fits(want)
		hit := false
		for _, d := range devices {
			if want == "" || !test(d) {
				continue
			}
			hit = true
			kept[d.UUID] = true
			for _, o := range devices {
				if o.UUID == d.Parent || o.Parent == d.UUID {
					kept[o.UUID] = true
				}
			}
		}
		if !hit {
			break
		}
	}
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !kept[d.UUID] })
}

func conditionsOf(fields map[string]any) (string, error) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := squeeze(fmt.Sprint(fields[name]))
		if name == "model" {
			value = "=" + value
		}
		list = append(list, name+value)
	}
	text := strings.Join(list, " ")
	if _, err := parseConditions(text); err != nil {
		return "", err
	}
	return text, nil
}

func squeeze(name string) string { return strings.ToLower(strings.Join(strings.Fields(name), "")) }

// parseConditions reads conditions such as model=H100 memory>=40GiB, which all must hold.
func parseConditions(text string) (meets []func(Device) bool, err error) {
	const example = "write it as model=H100, memory>=40GiB or both, and in a worker's file as {model: H100, memory: \">=40GiB\"}"
	for _, word := range strings.Fields(text) {
		model, isModel := strings.CutPrefix(word, "model=")
		lower, isLeast := strings.CutPrefix(word, "memory>=")
		upper, isMost := strings.CutPrefix(word, "memory<=")
		switch {
		case isModel && model != "":
			meets = append(meets, func(d Device) bool { return strings.Contains(squeeze(d.Name), squeeze(model)) })
		case isLeast || isMost:
			size, err := gpumux.ParseSize(lower)
			if isMost {
				size, err = gpumux.ParseSize(upper)
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
