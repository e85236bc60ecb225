package workers

import (
	"runtime"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// threads are the variables with which numeric libraries are told how many threads to use.
var threads = []string{
	"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
	"NUMBA_NUM_THREADS",
}

// environment is what a slot's device and budget put into the environment of a process that takes context bytes of each device
// beside its data; 0: unknown.
func environment(p config.Pool, g config.Group, context gpumux.Size) map[string]string {
	if g.Devices[0].Kind == gpu.KindCPU {
		if p.Slots == config.AutoSlots {
			// More slots do what threads would, and a process that runs can not be told of a new share.
			return cpuEnvironment(runtime.GOMAXPROCS(0))
		}
		return cpuEnvironment(int(p.Slots))
	}
	env := map[string]string{
		// By UUID, so that the same name means the same device in every tool.
		"CUDA_VISIBLE_DEVICES": g.Name,
		"CUDA_DEVICE_ORDER":    "PCI_BUS_ID",
	}
	if p.Memory > 0 || p.Slots > 1 || p.Slots == config.AutoSlots {
		// Without these the first slot takes most of the device at its start and its neighbours fail.
		env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
		env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
	}
	if p.Memory > 0 {
		capped(env, p.Memory/gpumux.Size(p.GPUsPerSlot), g.Devices, context)
	}
	return env
}

// contextRoom is what a process takes on a device beside its framework's own allocations, until it is measured: the CUDA context,
// code, the libraries' workspaces. On the largest devices the context alone is some 500 MiB.
const contextRoom = 1 << 30

// room is what a budget leaves for a framework's allocations. The framework's own limit has to be the first that is met: the
// task can go on after it, and cannot after the memory watch, which counts everything. A measured context may still grow by a
// quarter, as more code is loaded. The Python runtime has the same rule.
func room(budget, context gpumux.Size) gpumux.Size {
	if context > 0 {
		return max(budget/4, budget-context-context/4)
	}
	return budget - min(contextRoom, budget/4)
}

// capped sets the frameworks' own caps per device. Frameworks that need code for it are capped in the task process.
func capped(env map[string]string, budget gpumux.Size, devices []gpu.Device, context gpumux.Size) {
	budget = room(budget, context)
	env["CUPY_GPU_MEMORY_LIMIT"] = strconv.FormatInt(int64(budget), 10)
	env["JULIA_CUDA_HARD_MEMORY_LIMIT"] = strconv.FormatInt(int64(budget), 10)
	least := devices[0].Memory
	for _, d := range devices {
		least = min(least, d.Memory)
	}
	if least == 0 {
		return
	}
	// Rounded down to four places, and never to nothing. XLA_PYTHON_CLIENT_MEM_FRACTION is the same thing's old name: XLA
	// refuses to start when both are set.
	fraction := max(1, int64(float64(budget)/float64(least)*10000))
	text := strconv.FormatFloat(float64(min(fraction, 10000))/10000, 'f', 4, 64)
	env["XLA_CLIENT_MEM_FRACTION"] = strings.TrimPrefix(text, "0")
}

// cpuEnvironment hides the GPUs and splits the processors between the slots.
func cpuEnvironment(slots int) map[string]string {
	env := map[string]string{"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
	share := strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/slots))
	for _, name := range threads {
		env[name] = share
	}
	return env
}
