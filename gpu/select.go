package gpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selection names devices as a pool's `devices` does: all, cpu, an index (0), a MIG
// instance (0:1), or the start of a UUID. In a worker's file it is one of them or a list.
type Selection []string

// UnmarshalJSON reads one value or a list.
func (s *Selection) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) != nil {
		list = make([]string, 1)
		if json.Unmarshal(data, &list[0]) != nil {
			return fmt.Errorf("%.60s is neither a number nor a name; give all, cpu, indices such as [0, 1] or UUIDs", data)
		}
	}
	*s = list
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
		case slices.ContainsFunc(inv.list, func(d Device) bool { return d.MIG }):
			return nil, errors.New(noInstances)
		}
		return nil, fmt.Errorf("there is no GPU on this host: %s; to run on the processor write devices: cpu", cmp.Or(inv.Reason(), "none is listed"))
	case "cpu":
		return inv.filter(func(d Device) bool { return d.Kind == KindCPU }), nil
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
	return slices.DeleteFunc(slices.Clone(inv.list), func(d Device) bool { return !match(d) })
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
