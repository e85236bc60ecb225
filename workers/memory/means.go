package memory

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/config"
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

// means finds out what is in force for a pool. The caller holds the lock.
func (e *Enforcer) means(p config.Placement) means {
	if p.Memory == 0 {
		return means{}
	}
	var m means
	watched := fmt.Sprintf("%s every %s", meansWatch, watchNear)
	if onCPU(p) {
		if e.cgroups != nil && e.broken[meansCgroup] == nil {
			m.list = append(m.list, meansCgroup)
		}
		if err := e.broken[meansWatch]; err == nil {
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
	if m.lack = e.blind(p); m.lack == "" {
		m.list = append(m.list, watched)
	}
	return m
}

// blind says why the memory of processes on a pool's devices cannot be watched, or nothing.
func (e *Enforcer) blind(p config.Placement) string {
	if !e.hostPIDs {
		return "the worker does not see the host's process numbers, by which the driver tells what each holds: start the container " +
			"with them (docker run --pid=host, hostPID: true in Kubernetes)"
	}
	if d, found := e.unlisted(p); found {
		return fmt.Sprintf("a process uses %s, and the driver does not list its memory there under its number here, as in a sandbox "+
			"that hides process numbers from the driver; run the worker outside of it, or with the host's (docker run --pid=host)", d)
	}
	for _, g := range p.Groups {
		for _, d := range g.Devices {
			if _, err := e.devices.ProcessMemory(d.UUID); err != nil {
				return fmt.Sprintf("the driver does not tell what processes hold on %s: %v", d, err)
			}
		}
	}
	return ""
}

// unlisted is a device of a pool on which the driver does not list the processes that use it.
func (e *Enforcer) unlisted(p config.Placement) (gpu.Device, bool) {
	for _, g := range p.Groups {
		for _, d := range g.Devices {
			if e.unseen[d.UUID] {
				return d, true
			}
		}
	}
	return gpu.Device{}, false
}

// overlooked takes in that a process of a group uses its devices and that the driver does not list it: whatever its version promises,
// no budget is watched there. It is said once.
func (e *Enforcer) overlooked(in config.Group) {
	for _, d := range in.Devices {
		if _, err := e.devices.ProcessMemory(d.UUID); err != nil {
			return // it lists nobody now, which the watch says and which may pass
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	news := false
	for _, d := range in.Devices {
		news = news || !e.unseen[d.UUID]
		e.unseen[d.UUID] = true
	}
	if !news || !e.hostPIDs {
		return
	}
	for _, p := range e.placements {
		if _, found := e.unlisted(p); found && p.Memory > 0 {
			e.enforced[p.Name] = e.means(p) // it asks no driver, which could keep the lock
			e.sayPool(p)
		}
	}
}

// tell takes in which means on the CPU are broken, and tells the operator what keeps each pool within its budget, and whether the
// devices have room for it now.
func (e *Enforcer) tell(broken map[string]error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = broken
	for _, p := range e.placements {
		e.enforced[p.Name] = e.means(p)
		if p.Memory > 0 {
			e.sayPool(p)
			e.sayRoom(p)
		}
	}
	for _, want := range budgets(e.placements) {
		status, err := e.devices.Status(want.device.UUID)
		if err != nil || status.Memory.Total == 0 || uint64(want.bytes) <= status.Memory.Free {
			continue
		}
		e.log.Warn(fmt.Sprintf("the budgets on it are %s in all, but only %s are free now", want.bytes, gpumux.Size(status.Memory.Free)),
			zap.String(logkey.Device, want.device.UUID), zap.String(logkey.Why, "something else holds memory there; end it, or lower memory or slots"))
	}
}

// sayPool says what keeps a pool within its budget.
func (e *Enforcer) sayPool(p config.Placement) {
	m := e.enforced[p.Name]
	text := fmt.Sprintf("budget %s enforced by: %s", p.Memory, strings.Join(m.list, ", "))
	switch {
	case len(m.list) == 0:
		e.log.Error(fmt.Sprintf("budget %s enforced by: none; a task that takes more takes it from its neighbours and from this host",
			p.Memory), zap.String(logkey.Pool, p.Name), zap.String(logkey.Why, m.lack))
	case m.lack == "":
		e.log.Info(text, zap.String(logkey.Pool, p.Name))
	case onCPU(p):
		e.log.Warn(text+" only", zap.String(logkey.Pool, p.Name), zap.String(logkey.Why, m.lack))
	default:
		e.log.Warn(text+" only; a task that allocates past its framework takes from its neighbours", zap.String(logkey.Pool, p.Name),
			zap.String(logkey.Why, m.lack))
	}
}

// sayRoom warns when a budget leaves little for data beside a CUDA context and its libraries.
func (e *Enforcer) sayRoom(p config.Placement) {
	per := p.Memory / gpumux.Size(p.GPUsPerSlot)
	if !onCPU(p) && per <= ContextRoom {
		e.log.Warn(fmt.Sprintf("of a budget of %s per device only %s are left for data: a CUDA context and its libraries take the rest",
			per, Room(p.Pool, p.Groups[0], 0)), zap.String(logkey.Pool, p.Name))
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
