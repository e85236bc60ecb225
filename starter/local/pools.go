package local

import (
	"cmp"
	"runtime"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// mostCPUSlots is the most slots that a CPU pool gets without being told.
const mostCPUSlots = 4

// Pools makes a pool per name: the one called cpu on the CPU, others on the devices of like, else on all GPUs, or on the CPU where noGPU
// says why there is none. No names means one pool, gpu or cpu. The rest is that of like; its zero values are the defaults.
func Pools(names []string, like config.Pool) (pools []config.Pool, noGPU string) {
	if len(like.Devices) == 0 {
		noGPU = whyNoGPU()
	}
	if len(names) == 0 {
		names = []string{"gpu"}
		if noGPU != "" {
			names = []string{"cpu"}
		}
	}
	for _, name := range names {
		pool, slots := like, 1
		pool.Name = name
		if len(like.Devices) == 0 {
			pool.Devices = gpu.Selection{"all"}
		}
		if name == "cpu" || noGPU != "" {
			pool.Devices = gpu.Selection{"cpu"}
			if slots = min(runtime.GOMAXPROCS(0), mostCPUSlots); like.Sharing == "exclusive" {
				slots = 1
			}
			if noGPU == "" && len(names) > 1 {
				pool.Sharing = "" // it is meant for GPUs
			}
		}
		pool.Slots = cmp.Or(like.Slots, config.Slots(slots))
		pools = append(pools, pool)
	}
	return pools, noGPU
}

// whyNoGPU says why this machine has no GPU that tasks can use, or nothing.
func whyNoGPU() string {
	inventory, err := gpu.Open(gpu.Options{})
	if err != nil {
		return err.Error()
	}
	defer inventory.Close()
	if _, err := inventory.Select(gpu.Selection{"all"}); err != nil {
		return cmp.Or(inventory.Reason(), err.Error())
	}
	return ""
}
