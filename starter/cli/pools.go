package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// hasGPU says whether this machine has a GPU that tasks can use, and if not, why.
func hasGPU() (bool, string) {
	inventory, err := gpu.Open(gpu.Options{})
	if err != nil {
		return false, err.Error()
	}
	defer inventory.Close()
	if _, err := inventory.Select(gpu.Selection{"all"}); err != nil {
		return false, cmp.Or(inventory.Reason(), err.Error())
	}
	return true, ""
}

// poolsHere are the pools of a --local command. A GPU that was asked for and is not there is told.
func (a *app) poolsHere(f taskFlags) ([]config.Pool, error) {
	haveGPU, why := hasGPU()
	pools, err := localPools(f.pools, f.localFlags, gpumux.Mode(f.mode), haveGPU)
	for _, name := range f.pools {
		if err == nil && !haveGPU && name != "cpu" {
			a.console.say("pool %s runs on the CPU, for want of a GPU: %s", name, oneLine(why, 300))
		}
	}
	return pools, err
}

// mostCPUSlots is the most slots that a CPU pool gets without being told.
const mostCPUSlots = 4

// localPools makes a pool per name: the one called cpu on the CPU, others on all GPUs if there are any. No names means one
// pool, gpu or cpu.
func localPools(names []string, f localFlags, mode gpumux.Mode, haveGPU bool) ([]config.Pool, error) {
	if len(names) == 0 {
		names = []string{"cpu"}
		if haveGPU {
			names = []string{"gpu"}
		}
	}
	var memory gpumux.Size
	if f.memory != "" {
		var err error
		if memory, err = gpumux.ParseSize(f.memory); err != nil {
			return nil, usage("--memory: %v", err)
		}
	}
	var pools []config.Pool
	for _, name := range names {
		pool := config.Pool{Name: name, Devices: gpu.Selection{"all"}, Slots: 1, Memory: memory, Mode: mode}
		if name == "cpu" || !haveGPU {
			pool.Devices = gpu.Selection{"cpu"}
			pool.Slots = config.Slots(min(runtime.GOMAXPROCS(0), mostCPUSlots))
		}
		if f.slots != 0 {
			pool.Slots = config.Slots(f.slots)
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

// slotCount is --slots: a number, or auto. 0 is the default.
type slotCount config.Slots

// String implements pflag.Value.
func (s *slotCount) String() string {
	switch config.Slots(*s) {
	case 0:
		return ""
	case config.AutoSlots:
		return "auto"
	}
	return strconv.Itoa(int(*s))
}

// Set implements pflag.Value.
func (s *slotCount) Set(text string) error { return (*config.Slots)(s).UnmarshalText([]byte(text)) }

// Type implements pflag.Value.
func (s *slotCount) Type() string { return "number" }

// poolNames lists the pools for a map's ladder.
func poolNames(pools []config.Pool) []string {
	names := make([]string, len(pools))
	for i, pool := range pools {
		names[i] = pool.Name
	}
	return names
}

// offered describes pools in a line each: "gpu: 2 slots per device on all".
func offered(pools []gpumux.PoolInfo) string {
	var lines []string
	for _, p := range pools {
		line := fmt.Sprintf("%s (%d slots", p.Name, p.Slots)
		if p.MaxSlots > 0 {
			line += fmt.Sprintf(", at most %d by measurement,", p.MaxSlots)
		}
		if p.Memory > 0 {
			line += " of " + p.Memory.String()
		}
		lines = append(lines, line+" on "+strings.Join(p.Devices, ", ")+")")
	}
	return strings.Join(lines, ", ")
}
