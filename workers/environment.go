package workers

import (
	"runtime"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/workers/config"
)

// environment suits a slot's devices; room is a framework's share of each. So many slots
// share the processors.
func environment(p config.Pool, g config.Group, room gpumux.Size, slots int) map[string]string {
	env := map[string]string{}
	if slots > 1 {
		share := strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/slots))
		for _, name := range launch.Threads {
			env[name] = share
		}
	}
	if g.Devices[0].Kind == gpu.KindCPU {
		env["CUDA_VISIBLE_DEVICES"], env["JAX_PLATFORMS"] = "", "cpu" // no GPU by mistake
		return env
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
