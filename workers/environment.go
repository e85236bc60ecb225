package workers

import (
	"runtime"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/workers/config"
)

// threads are the variables that tell numeric libraries how many threads to use.
var threads = []string{
	"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
	"NUMBA_NUM_THREADS",
}

// environment suits a slot's devices; room is a framework's share of each. The host has
// so many slots in all.
func environment(p config.Pool, g config.Group, room gpumux.Size, slots int) map[string]string {
	if g.Devices[0].Kind == gpu.KindCPU {
		if p.Slots == config.AutoSlots {
			// Slots do what threads would, and a running process cannot learn of a new share.
			return cpuEnvironment(runtime.GOMAXPROCS(0))
		}
		return cpuEnvironment(int(p.Slots))
	}
	env := map[string]string{}
	if slots > 1 {
		env = threadsOf(slots)
	}
	// By UUID, so that the same name means the same device in every tool.
	env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"] = g.Name, "PCI_BUS_ID"
	if p.Memory > 0 || p.Slots > 1 || p.Slots == config.AutoSlots {
		// Without these the first slot takes most of the device at its start.
		env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
		env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
	}
	memory.Cap(env, room, g.Devices)
	return env
}

// cpuEnvironment hides the GPUs and splits the processors between the slots.
func cpuEnvironment(slots int) map[string]string {
	env := threadsOf(slots)
	env["CUDA_VISIBLE_DEVICES"], env["JAX_PLATFORMS"] = "", "cpu"
	return env
}

// threadsOf gives one of so many slots its part of the processors.
func threadsOf(slots int) map[string]string {
	env, share := map[string]string{}, strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/slots))
	for _, name := range threads {
		env[name] = share
	}
	return env
}
