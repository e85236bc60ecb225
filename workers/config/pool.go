package config

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/names"
)

// Pool is one pool: equal slots on some of the host's devices.
type Pool struct {
	// Name is the pool's name in maps; its task queue is gpumux.<name>.
	Name string `json:"name,omitzero"`
	// Devices are all, cpu, indices such as [0, 1] or UUIDs. Default all.
	Devices gpu.Selection `json:"devices,omitzero"`
	// Slots is the number of slots per device, or per group of GPUs when GPUsPerSlot is
	// above 1; AutoSlots lets the worker find it by measurement, CoreSlots is for the CPU.
	// Default 1.
	Slots Slots `json:"slots,omitzero"`
	// Memory is the budget of one slot, over all of its devices together. Default: none.
	Memory gpumux.Size `json:"memory,omitzero"`
	// Reserve is the memory of each device that stays free for others, what they hold
	// included. Default: none.
	Reserve gpumux.Size `json:"reserve,omitzero"`
	// Mode is for tasks and maps that don't say. Default persistent.
	Mode gpumux.Mode `json:"mode,omitzero"`
	// Sharing is how slots share a device. Default: by turns.
	Sharing string `json:"sharing,omitzero"`
	// GPUsPerSlot is the number of GPUs that one slot gets. Default 1.
	GPUsPerSlot int `json:"gpus_per_slot,omitzero"`
	// Cores are near, the processors next to a slot's GPUs where that leaves none idle, or
	// all. Default near.
	Cores string `json:"cores,omitzero"`
	// Price is what an hour of one GPU costs, in any currency. Default: not known.
	Price float64 `json:"price,omitzero"`
}

// Slots is a number of slots per device; 0 means the default, 1.
type Slots int

// AutoSlots lets the worker find the number with the most throughput, CoreSlots is one
// per core, at most 4; "auto" and "cores" in the file.
const AutoSlots, CoreSlots, maxCoreSlots Slots = -1, -2, 4

var slotWords = map[Slots]string{AutoSlots: "auto", CoreSlots: "cores"}

// autoGPU bounds AutoSlots on a GPU. On the CPU there is at most one per processor.
const autoGPU = 16

// maxSlots is far above what a device can serve; more is a typing error.
const maxSlots = 256

// MarshalText is what UnmarshalText reads.
func (s Slots) MarshalText() ([]byte, error) {
	return []byte(cmp.Or(slotWords[s], strconv.Itoa(int(s)))), nil
}

// UnmarshalText reads a number from 1 up, auto or cores.
func (s *Slots) UnmarshalText(text []byte) error {
	for value, word := range slotWords {
		if string(text) == word {
			*s = value
			return nil
		}
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > maxSlots {
		return fmt.Errorf("%q is not a number of slots; give 1 to %d, auto or cores", text, maxSlots)
	}
	*s = Slots(n)
	return nil
}

// Placement is a pool with its devices resolved.
type Placement struct {
	Pool
	index  int // in Config.Pools
	Groups []Group
	// MaxSlots is the number of slots per group; with AutoSlots, which begins with 1, the
	// largest one. Fit is the most whose budgets fit at once.
	MaxSlots, Fit int
}

// Auto reports whether the number of slots is found by measurement.
func (p Pool) Auto() bool { return p.Slots == AutoSlots }

// MinSlots is the smallest number of slots per group.
func (p Placement) MinSlots() int {
	if p.Auto() {
		return 1
	}
	return int(p.Slots)
}

// Devices lists the devices of all placements, each once.
func Devices(placements []Placement) []gpu.Device {
	var list []gpu.Device
	for _, p := range placements {
		for _, d := range p.devices() {
			if !slices.Contains(list, d) {
				list = append(list, d)
			}
		}
	}
	return list
}

// Group is the devices of one slot: one, or GPUsPerSlot of them.
type Group struct {
	// Name is the UUID, or UUIDs with commas, as in CUDA_VISIBLE_DEVICES and queues.
	Name    string
	Devices []gpu.Device
}

// placements resolves the devices of every pool and checks that all fit together.
func (c Config) placements(inventory *gpu.Inventory, r *report) []Placement {
	r.when(len(c.Pools) == 0, "pools", "none given; name at least one, such as {name: gpu, devices: all, slots: 1}")
	var placements []Placement
	named := map[string]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		p.check(at, named, r)
		named[p.Name] = true
		p = p.withDefaults()
		devices, err := inventory.Select(p.Devices)
		if err != nil {
			r.add(at+".devices", "%s", strings.TrimPrefix(err.Error(), "devices: "))
			continue
		}
		groups := p.groups(devices, at, r)
		placements = append(placements, Placement{Pool: p, index: i, Groups: groups, MaxSlots: int(p.Slots), Fit: int(p.Slots)})
	}
	checkShares(placements, r)
	for i, p := range placements {
		if p.Auto() && len(p.Groups) > 0 {
			placements[i].Fit, placements[i].MaxSlots = p.capacity(placements)
		}
	}
	c.checkSharing(placements, r)
	checkComputeModes(placements, inventory, r)
	return placements
}

func (p Placement) uses(d gpu.Device) bool { return slices.Contains(p.devices(), d) }

func (p Placement) devices() (list []gpu.Device) {
	for _, g := range p.Groups {
		list = append(list, g.Devices...)
	}
	return list
}

func (p Pool) withDefaults() Pool {
	switch p.Slots {
	case AutoSlots:
	case CoreSlots:
		p.Slots = min(Slots(runtime.GOMAXPROCS(0)), maxCoreSlots)
	default:
		p.Slots = max(p.Slots, 1)
	}
	p.GPUsPerSlot = max(p.GPUsPerSlot, 1)
	if len(p.Devices) == 0 {
		p.Devices = gpu.Selection{"all"}
	}
	p.Mode = cmp.Or(p.Mode, gpumux.ModePersistent)
	return p
}

// check reports mistakes that do not depend on the devices.
func (p Pool) check(at string, named map[string]bool, r *report) {
	if p.Name == "" {
		r.add(at+".name", "is missing; name the pool, such as gpu")
	} else if err := names.Pool(p.Name); err != nil {
		r.add(at+".name", "%v", err)
	} else if named[p.Name] {
		r.add(at+".name", "%q is the name of an earlier pool too; give each pool its own", p.Name)
	}
	r.when(slotWords[p.Slots] == "" && (p.Slots < 0 || p.Slots > maxSlots), at+".slots", "%d is outside 1 to %d", p.Slots, maxSlots)
	r.when(p.GPUsPerSlot < 0, at+".gpus_per_slot", "%d is below 1", p.GPUsPerSlot)
	r.when(p.Price < 0, at+".price", "%g is below 0", p.Price)
	r.when(p.Reserve > 0 && p.Memory == 0 && p.Slots != AutoSlots, at+".reserve",
		"%s without memory; nothing keeps a slot without a budget from taking it, so give memory, or slots: auto", p.Reserve)
	oneOf(r, at+".cores", p.Cores, "near", "all")
	oneOf(r, at+".mode", p.Mode, gpumux.ModePersistent, gpumux.ModeFresh)
}

// groups splits the devices, in the order of the selection, into those of one slot each.
func (p Pool) groups(devices []gpu.Device, at string, r *report) []Group {
	k := p.GPUsPerSlot
	if i := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.Kind != gpu.KindGPU }); k > 1 && i >= 0 {
		r.add(at+".gpus_per_slot", "%d, but %s is not a whole GPU; only whole GPUs can be joined", k, devices[i])
		return nil
	}
	if len(devices)%k != 0 {
		r.add(at+".gpus_per_slot", "%d GPUs do not divide into groups of %d; name a multiple of %d in devices", len(devices), k, k)
		return nil
	}
	var groups []Group
	for members := range slices.Chunk(p.linked(devices), k) {
		var names []string
		for _, d := range members {
			names = append(names, d.UUID)
		}
		groups = append(groups, Group{Name: strings.Join(names, ","), Devices: members})
	}
	return groups
}

// linked puts next to each other those GPUs of a slot that have the best links. The order
// of GPUs that were named is the user's.
func (p Pool) linked(devices []gpu.Device) (ordered []gpu.Device) {
	if len(p.Devices) != 1 || !strings.EqualFold(strings.TrimSpace(p.Devices[0]), "all") {
		return devices
	}
	rest := slices.Clone(devices)
	for len(rest) > 0 {
		members, next := ordered[len(ordered)-len(ordered)%p.GPUsPerSlot:], 0
		far := func(d gpu.Device) (sum int) {
			for _, member := range members {
				sum += member.Distance(d)
			}
			return sum
		}
		for i, d := range rest {
			if far(d) < far(rest[next]) {
				next = i
			}
		}
		ordered, rest = append(ordered, rest[next]), slices.Delete(rest, next, next+1)
	}
	return ordered
}

// Instances reports whether every slot has a MIG instance of about its budget to itself.
func (p Placement) Instances() bool {
	return p.MaxSlots == 1 && !slices.ContainsFunc(p.Groups, func(g Group) bool {
		d := g.Devices[0]
		return d.Kind != gpu.KindMIG || uint64(p.Memory) < d.Memory-d.Memory/8
	})
}
