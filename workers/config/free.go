package config

import (
	"fmt"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

// takenPart is how much of a GPU others hold at least where it is taken for a pool
// without a budget: one part in so many.
const takenPart = 20

// free are the GPUs with room for the pool's slots beside what others hold now.
func (p Pool) free(inventory *gpu.Inventory) (devices []gpu.Device, err error) {
	all, err := inventory.Select(gpu.Selection{"all"})
	if err != nil {
		return nil, err
	}
	wanted := p.Memory / gpumux.Size(p.GPUsPerSlot) * gpumux.Size(Placement{Pool: p}.MinSlots())
	var taken []string
	for _, d := range all {
		status, err := inventory.Status(d.UUID)
		if err != nil {
			taken = append(taken, err.Error())
			continue
		}
		room := uint64(wanted) <= status.Memory.Free
		if wanted == 0 {
			room = status.Memory.Held() < status.Memory.Total/takenPart
		}
		if room || status.Memory.Total == 0 {
			devices = append(devices, d)
		} else {
			taken = append(taken, fmt.Sprintf("of %s others hold %s of %s%s", d, gpumux.Size(status.Memory.Held()),
				gpumux.Size(status.Memory.Total), gpu.Largest(status.Processes)))
		}
	}
	if devices = devices[:len(devices)-len(devices)%p.GPUsPerSlot]; len(devices) > 0 {
		return devices, nil
	}
	room := "is free"
	if wanted > 0 {
		room = fmt.Sprintf("has %s free", wanted)
	}
	if p.GPUsPerSlot > 1 {
		room += fmt.Sprintf(" beside %d others", p.GPUsPerSlot-1)
	}
	return nil, fmt.Errorf("no GPU %s: %s; wait, lower memory or slots, or name devices", room, strings.Join(taken, "; "))
}
