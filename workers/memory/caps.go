package memory

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// ContextRoom is the assumed memory of a process on a device beside its framework's allocations, until it is measured: the CUDA
// context, code, the libraries' workspaces. On the largest devices the context alone is some 500 MiB.
const ContextRoom = 1 << 30

// Room is how many bytes a slot's budget leaves on each of its devices for a framework's allocations beside the allowance; 0: nothing
// is limited. The framework must meet its own limit first: the task can go on after it, but not after the watch, which counts
// everything. A measured allowance may still grow by a quarter, as more code is loaded.
func Room(p config.Pool, g config.Group, allowance gpumux.Size) gpumux.Size {
	if p.Memory == 0 || g.Devices[0].Kind == gpu.KindCPU {
		return 0
	}
	budget := p.Memory / gpumux.Size(p.GPUsPerSlot)
	if allowance > 0 {
		return max(budget/4, budget-allowance-allowance/4)
	}
	return budget - min(ContextRoom, budget/4)
}

// Cap puts the frameworks' own limits per device into a process's environment. The task process, which knows the room, limits the
// frameworks that need code for it.
func Cap(env map[string]string, room gpumux.Size, devices []gpu.Device) {
	if room == 0 {
		return
	}
	env["CUPY_GPU_MEMORY_LIMIT"] = strconv.FormatInt(int64(room), 10)
	env["JULIA_CUDA_HARD_MEMORY_LIMIT"] = strconv.FormatInt(int64(room), 10)
	// Above this CUDA.jl gives cached memory back by itself; no trim reaches it.
	env["JULIA_CUDA_SOFT_MEMORY_LIMIT"] = strconv.FormatInt(int64(room-room/8), 10)
	least := slices.MinFunc(devices, func(a, b gpu.Device) int { return cmp.Compare(a.Memory, b.Memory) }).Memory
	if least == 0 {
		return
	}
	// Rounded down to four places, and never to nothing. XLA_PYTHON_CLIENT_MEM_FRACTION is the old name; XLA refuses both at once.
	fraction := max(1, int64(float64(room)/float64(least)*10000))
	text := strconv.FormatFloat(float64(min(fraction, 10000))/10000, 'f', 4, 64)
	env["XLA_CLIENT_MEM_FRACTION"] = strings.TrimPrefix(text, "0")
}
