package workers

import (
	"runtime"
	"strconv"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/memory"
	"github.com/gpumux/gpumux/workers/pool"
)

// Describe is what the worker offers now.
func (w *Worker) Describe() gpumux.Describe {
	d := gpumux.Describe{Identity: w.identity, Version: w.o.Version, Host: w.host, Store: w.storeURL,
		Tasks: w.tasks.Names(), Modes: w.tasks.Modes()}
	for i, p := range w.placements {
		info := gpumux.PoolInfo{Name: p.Name, Slots: p.Least() * len(p.Groups), Memory: p.Memory, Mode: p.Mode}
		if w.memory != nil {
			info.Means = w.memory.Means(p.Name)
		}
		if p.Auto() {
			info.MaxSlots = p.Most * len(p.Groups)
			if i < len(w.pools) {
				info.Slots = w.pools[i].Size() * len(p.Groups)
			}
		}
		if i < len(w.pools) {
			info.Busy, info.Leased, info.Leases = w.pools[i].Busy(""), w.pools[i].Leased(""), w.pools[i].Leases
			info.Seats = seats(w.pools[i])
		}
		for _, g := range p.Groups {
			info.Devices = append(info.Devices, g.Name)
		}
		d.Pools = append(d.Pools, info)
	}
	return d
}

// printed is what an item of a map prints in a slot of this worker, from where the caller has read to.
func (w *Worker) printed(in contract.OutputInput) (out contract.Output) {
	for _, each := range w.pools {
		each.Each(func(h *pool.Handle, holder string) {
			r, pid := h.Stats().Running, h.PID()
			if holder != in.Map || r == nil || r.Index != in.Item || r.Out == nil {
				return
			}
			if pid != in.PID {
				in.From = 0
			}
			text, next := r.Out.Since(in.From)
			// What was read meanwhile is in the result.
			if now := h.Stats().Running; now != nil && now.Index == r.Index && now.Began.Equal(r.Began) && now.Out == r.Out {
				out = contract.Output{Text: text, PID: pid, Next: next}
			}
		})
	}
	return out
}

// seats are a pool's slots now.
func seats(p *pool.Pool) (all []gpumux.SlotInfo) {
	p.Each(func(h *pool.Handle, holder string) {
		stats := h.Stats()
		info := gpumux.SlotInfo{Name: h.Name, Device: h.Group, State: string(h.State()), Task: h.Task(), PID: h.PID(), Map: holder,
			Held: gpumux.Size(stats.Held), Items: stats.Items, Faults: h.Faults.Load()}
		if r := stats.Running; r != nil {
			info.For, info.Progress = gpumux.Duration(max(time.Millisecond, time.Since(r.Began).Round(time.Millisecond))), r.Progress
			if r.Index >= 0 {
				info.Item = &r.Index
			}
		}
		all = append(all, info)
	})
	return all
}

// threads are the variables that tell numeric libraries how many threads to use.
var threads = []string{
	"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
	"NUMBA_NUM_THREADS",
}

// environment is the environment that a slot's devices need. room is what a process's framework may use on each of them.
func environment(p config.Pool, g config.Group, room gpumux.Size) map[string]string {
	if g.Devices[0].Kind == gpu.KindCPU {
		if p.Slots == config.AutoSlots {
			// Slots do what threads would, and a running process cannot learn of a new share.
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
	memory.Cap(env, room, g.Devices)
	return env
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
