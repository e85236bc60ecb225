package workers

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/workers/config"
)

func TestEnvironment_GPU(t *testing.T) {
	d := gpu.Device{Kind: gpu.KindGPU, UUID: "GPU-aaaa", Memory: 80 << 30}
	g := config.Group{Name: "GPU-aaaa", Devices: []gpu.Device{d}}

	env := unmeasured(config.Pool{Slots: 4, GPUsPerSlot: 1, Memory: 8 << 30}, g)
	require.Equal(t, map[string]string{
		"CUDA_VISIBLE_DEVICES": "GPU-aaaa", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
		"XLA_CLIENT_MEM_FRACTION": ".0875", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true",
		"CUPY_GPU_MEMORY_LIMIT": "7516192768", "JULIA_CUDA_HARD_MEMORY_LIMIT": "7516192768",
		"JULIA_CUDA_SOFT_MEMORY_LIMIT": "6576668672",
	}, env)

	// One slot without a budget has the device to itself: frameworks may do as they like.
	env = unmeasured(config.Pool{Slots: 1, GPUsPerSlot: 1}, g)
	require.Equal(t, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-aaaa", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, env)

	// Several slots without a budget: nobody may take all of it at the start.
	env = unmeasured(config.Pool{Slots: 2, GPUsPerSlot: 1}, g)
	require.Equal(t, "false", env["XLA_PYTHON_CLIENT_PREALLOCATE"])
	require.NotContains(t, env, "XLA_CLIENT_MEM_FRACTION")

	// Joined GPUs share the budget; the smallest one bounds the fraction.
	small := d
	small.Memory = 40 << 30
	env = unmeasured(config.Pool{Slots: 1, GPUsPerSlot: 2, Memory: 20 << 30}, config.Group{Name: "GPU-aaaa,GPU-bbbb", Devices: []gpu.Device{d, small}})
	require.Equal(t, "GPU-aaaa,GPU-bbbb", env["CUDA_VISIBLE_DEVICES"])
	require.Equal(t, ".2250", env["XLA_CLIENT_MEM_FRACTION"])

	// The whole device, and a device whose size the driver does not tell.
	env = unmeasured(config.Pool{Slots: 1, GPUsPerSlot: 1, Memory: 80 << 30}, g)
	require.Equal(t, ".9875", env["XLA_CLIENT_MEM_FRACTION"])
	env = unmeasured(config.Pool{Slots: 1, GPUsPerSlot: 1, Memory: 80 << 30}, config.Group{Name: "x", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "x"}}})
	require.NotContains(t, env, "XLA_CLIENT_MEM_FRACTION")
}

func TestEnvironment_CPUHidesTheGPUs(t *testing.T) {
	env := environment(config.Pool{Slots: 2, GPUsPerSlot: 1, Memory: 1 << 30}, cpuGroup, 0, 1)
	require.Equal(t, map[string]string{"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}, env)
}

// Many slots with a framework each must not all use all processors. One slot alone may.
// An engine that pins its threads sets OMP_NUM_THREADS again, but not MKL's own, which
// wins: that made vLLM ten times slower.
func TestEnvironment_SlotsShareTheProcessors(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	for _, g := range []config.Group{cpuGroup, {Name: "GPU-aaaa", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "GPU-aaaa", Memory: 80 << 30}}}} {
		for _, slots := range []int{1, 2, 3, 1000} {
			env := environment(config.Pool{Slots: 1, GPUsPerSlot: 1}, g, 0, slots)
			for _, name := range []string{"OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"} {
				if slots == 1 {
					require.NotContains(t, env, name)
				} else {
					require.Equal(t, strconv.Itoa(max(1, cores/slots)), env[name], name)
				}
			}
			for _, name := range []string{"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"} {
				require.NotContains(t, env, name, "it follows OMP_NUM_THREADS")
			}
		}
	}
}

func TestWorker_SlotsAbreast(t *testing.T) {
	group := func(uuids ...string) (g config.Group) {
		for _, uuid := range uuids {
			g.Devices = append(g.Devices, gpu.Device{Kind: gpu.KindGPU, UUID: uuid})
		}
		return g
	}
	one, two, both := group("one"), group("two"), group("one", "two")
	w := &Worker{placements: []config.Placement{
		{Groups: []config.Group{cpuGroup}, Most: 6}, {Groups: []config.Group{one, two}, Most: 2}, {Groups: []config.Group{both}, Most: 1},
	}}
	require.Equal(t, 11, w.abreast(cpuGroup, false), "the slots of all pools")
	require.Equal(t, 11, w.abreast(one, false))
	require.Equal(t, 6, w.abreast(cpuGroup, true), "others on the device wait")
	require.Equal(t, 9, w.abreast(one, true))
	require.Equal(t, 7, w.abreast(both, true))

	w.placements = []config.Placement{{Groups: []config.Group{cpuGroup}, Most: 4}}
	require.Equal(t, 4, w.abreast(cpuGroup, false))
	require.Equal(t, 1, w.abreast(cpuGroup, true))
}

// cpuGroup is the group of every pool on the CPU.
var cpuGroup = config.Group{Name: gpu.CPU, Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: gpu.CPU, Memory: 64 << 30}}}

// unmeasured is the environment of a process of which nobody has measured what it takes
// beside its data.
func unmeasured(p config.Pool, g config.Group) map[string]string {
	return environment(p, g, memory.Room(p, g, 0), 1)
}
