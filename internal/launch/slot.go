package launch

import (
	"maps"
	"runtime"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// Slot is what decides the variables that a slot sets.
type Slot struct {
	// Group are the UUIDs of its GPUs with commas; empty: it computes on the CPU.
	Group string
	// Beside is how many slots share the processors, this one included.
	Beside int
	// Shared says that others use the devices too, or that the slot has a budget.
	Shared bool
	// Room is a framework's share of each device; 0: no limit. Smallest is the memory of the
	// smallest one; 0: unknown.
	Room     gpumux.Size
	Smallest uint64
	Sharing  map[string]string
}

func (s Slot) Variables() map[string]string {
	env := map[string]string{}
	if s.Beside > 1 {
		for _, name := range threads {
			env[name] = strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/s.Beside))
		}
	}
	if s.Group == "" {
		env["CUDA_VISIBLE_DEVICES"], env["JAX_PLATFORMS"] = "", "cpu" // no GPU by mistake
	} else {
		// By UUID, so that the same name means the same device in every tool.
		env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"] = s.Group, "PCI_BUS_ID"
		if s.Shared {
			// Without these the first slot takes most of the device at its start.
			env["XLA_PYTHON_CLIENT_PREALLOCATE"], env["TF_FORCE_GPU_ALLOW_GROWTH"] = "false", "true"
		}
		s.limit(env)
	}
	maps.Copy(env, s.Sharing)
	return env
}

// limit sets the frameworks' own limits per device. The task process, which knows the
// room, limits the frameworks that need code for it.
func (s Slot) limit(env map[string]string) {
	if s.Room == 0 {
		return
	}
	env["CUPY_GPU_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room), 10)
	env["JULIA_CUDA_HARD_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room), 10)
	// Above this CUDA.jl gives cached memory back by itself; no trim reaches it.
	env["JULIA_CUDA_SOFT_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room-s.Room/8), 10)
	if s.Smallest == 0 {
		return
	}
	fraction := max(1, int64(float64(s.Room)/float64(s.Smallest)*10000))
	text := strconv.FormatFloat(float64(min(fraction, 10000))/10000, 'f', 4, 64)
	env["XLA_CLIENT_MEM_FRACTION"] = strings.TrimPrefix(text, "0")
}
