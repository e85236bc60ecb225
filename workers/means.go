package workers

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// means are what keeps the slots of a pool within their budget, strongest first, as people read it.
type means struct {
	list []string
	// lack says what is missing, for pools whose budget nothing enforces for every kind of task.
	lack string
}

// The means by name: of the CPU, of both, of a GPU.
const (
	meansCgroup = "cgroup"
	meansWatch  = "watch"
	meansCaps   = "framework caps"
)

// means finds out what is in force for a pool.
func (w *Worker) means(p config.Placement) means {
	if p.Memory == 0 {
		return means{}
	}
	var m means
	watched := fmt.Sprintf("%s every %s", meansWatch, watchNear)
	if p.Groups[0].Devices[0].Kind == gpu.KindCPU {
		if w.cgroups != nil && w.broken[meansCgroup] == nil {
			m.list = append(m.list, meansCgroup)
		}
		if err := w.broken[meansWatch]; err == nil {
			m.list = append(m.list, watched)
		} else {
			m.lack = err.Error()
		}
		return m
	}
	if p.Instances() {
		m.list = append(m.list, "MIG")
	}
	m.list = append(m.list, meansCaps)
	if m.lack = w.blind(p); m.lack == "" {
		m.list = append(m.list, watched)
	}
	return m
}

// blind says why the memory of processes on a pool's devices cannot be watched, or nothing.
func (w *Worker) blind(p config.Placement) string {
	if !w.hostPIDs {
		return "the worker does not see the host's process numbers, by which the driver tells what each holds: start the container " +
			"with them (docker run --pid=host, hostPID: true in Kubernetes)"
	}
	if d, found := w.unlisted(p); found {
		return fmt.Sprintf("a process uses %s, and the driver does not list its memory there under its number here, as in a sandbox "+
			"that hides process numbers from the driver; run the worker outside of it, or with the host's (docker run --pid=host)", d)
	}
	for _, g := range p.Groups {
		for _, d := range g.Devices {
			if _, err := w.inventory.ProcessMemory(d.UUID); err != nil {
				return fmt.Sprintf("the driver does not tell what processes hold on %s: %v", d, err)
			}
		}
	}
	return ""
}

// unlisted is a device of a pool on which the driver does not list the processes that use it.
func (w *Worker) unlisted(p config.Placement) (gpu.Device, bool) {
	for _, g := range p.Groups {
		for _, d := range g.Devices {
			if w.unseen[d.UUID] {
				return d, true
			}
		}
	}
	return gpu.Device{}, false
}

// overlooked takes in that a process of a group uses its devices and that the driver does not list it: whatever its version promises,
// no budget is watched there. It is said once.
func (w *Worker) overlooked(in config.Group) {
	for _, d := range in.Devices {
		if _, err := w.inventory.ProcessMemory(d.UUID); err != nil {
			return // it lists nobody now, which the watch says and which may pass
		}
	}
	w.telling.Lock()
	defer w.telling.Unlock()
	news := false
	for _, d := range in.Devices {
		news = news || !w.unseen[d.UUID]
		w.unseen[d.UUID] = true
	}
	if !news || !w.hostPIDs {
		return
	}
	for _, p := range w.placements {
		if _, found := w.unlisted(p); found && p.Memory > 0 {
			w.enforced[p.Name] = w.means(p) // it asks no driver, which could keep the lock
			w.sayPool(p)
		}
	}
}

// confine opens what limits task processes on the CPU in the kernel, where a pool wants it and the system allows it.
func (w *Worker) confine() {
	if !slices.ContainsFunc(w.placements, func(p config.Placement) bool {
		return p.Memory > 0 && p.Groups[0].Devices[0].Kind == gpu.KindCPU
	}) {
		return
	}
	var err error
	if w.cgroups, err = process.OpenCgroups(); err != nil {
		w.log.Debug("task processes get no cgroups of their own", zap.String(logkey.Why, err.Error()))
	}
}

// sayMeans tells the operator what keeps each pool within its budget, and whether the devices have room for it now.
func (w *Worker) sayMeans() {
	for _, p := range w.placements {
		if p.Memory > 0 {
			w.sayPool(p)
			w.sayRoom(p)
		}
	}
	for _, want := range budgets(w.placements) {
		status, err := w.inventory.Status(want.device.UUID)
		if err != nil || status.Memory.Total == 0 || uint64(want.bytes) <= status.Memory.Free {
			continue
		}
		w.log.Warn(fmt.Sprintf("the budgets on it are %s in all, but only %s are free now", want.bytes, gpumux.Size(status.Memory.Free)),
			zap.String(logkey.Device, want.device.UUID), zap.String(logkey.Why, "something else holds memory there; end it, or lower memory or slots"))
	}
}

// sayPool says what keeps a pool within its budget.
func (w *Worker) sayPool(p config.Placement) {
	m := w.enforced[p.Name]
	text := fmt.Sprintf("budget %s enforced by: %s", p.Memory, strings.Join(m.list, ", "))
	switch {
	case len(m.list) == 0:
		w.log.Error(fmt.Sprintf("budget %s enforced by: none; a task that takes more takes it from its neighbours and from this host",
			p.Memory), zap.String(logkey.Pool, p.Name), zap.String(logkey.Why, m.lack))
	case m.lack == "":
		w.log.Info(text, zap.String(logkey.Pool, p.Name))
	case p.Groups[0].Devices[0].Kind == gpu.KindCPU:
		w.log.Warn(text+" only", zap.String(logkey.Pool, p.Name), zap.String(logkey.Why, m.lack))
	default:
		w.log.Warn(text+" only; a task that allocates past its framework takes from its neighbours", zap.String(logkey.Pool, p.Name),
			zap.String(logkey.Why, m.lack))
	}
}

// sayRoom warns when a budget leaves little for data beside a CUDA context and its libraries.
func (w *Worker) sayRoom(p config.Placement) {
	per := p.Memory / gpumux.Size(p.GPUsPerSlot)
	if model(p.Groups[0].Devices[0]) != gpu.CPU && per <= contextRoom {
		w.log.Warn(fmt.Sprintf("of a budget of %s per device only %s are left for data: a CUDA context and its libraries take the rest",
			per, room(per, 0)), zap.String(logkey.Pool, p.Name))
	}
}

// wanted is the sum of the budgets on a device.
type wanted struct {
	device gpu.Device
	bytes  gpumux.Size
}

func budgets(placements []config.Placement) []wanted {
	var list []wanted
	for _, p := range placements {
		for _, g := range p.Groups {
			for _, d := range g.Devices {
				at := slices.IndexFunc(list, func(w wanted) bool { return w.device.UUID == d.UUID })
				if at < 0 {
					at, list = len(list), append(list, wanted{device: d})
				}
				list[at].bytes += p.Memory / gpumux.Size(p.GPUsPerSlot) * gpumux.Size(p.Least())
			}
		}
	}
	return list
}
