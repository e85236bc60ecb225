package memory

import (
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/workers/config"
)

// means keep the slots of a pool within their budget: strongest first, for people.
type means struct {
	list []string
	// lack says what is missing where nothing enforces the budget for every kind of task.
	lack string
}

// inForce finds the means that keep a pool within its budget. The caller holds the lock.
func (e *Enforcer) inForce(p config.Placement) means {
	if p.Memory == 0 {
		return means{}
	}
	var m means
	rounds := fmt.Sprintf("watch every %s", watchNear)
	if p.Groups[0].Devices[0].Kind == gpu.KindCPU {
		return means{list: []string{rounds}}
	}
	if p.Instances() {
		m.list = append(m.list, "MIG")
	}
	if sharing.Mode(p.Sharing) == sharing.MPS {
		m.list = append(m.list, "MPS")
	}
	m.list = append(m.list, "framework caps")
	if m.lack = e.unwatched(p); m.lack == "" {
		m.list = append(m.list, rounds)
	}
	return m
}

// unwatched is why memory on a pool's devices cannot be watched, or "".
func (e *Enforcer) unwatched(p config.Placement) string {
	if d, found := e.unseen(p); found {
		return fmt.Sprintf("the driver does not tell what processes hold on %s by their numbers here, as drivers before 565.57 in a container "+
			"with numbers of its own: start the container with the host's (docker run --pid=host, hostPID: true in Kubernetes), or install a "+
			"newer driver; in a sandbox such as gVisor only a worker outside of it sees that", d)
	}
	for _, d := range devices(p) {
		if _, err := e.devices.ProcessMemory(d.UUID); err != nil {
			return fmt.Sprintf("the driver does not tell what processes hold on %s: %v", d, err)
		}
	}
	return ""
}

// unseen finds a device of a pool on which the watch sees nothing.
func (e *Enforcer) unseen(p config.Placement) (gpu.Device, bool) {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	for _, d := range devices(p) {
		if !e.watch.sees(d.UUID) {
			return d, true
		}
	}
	return gpu.Device{}, false
}

func devices(p config.Placement) []gpu.Device { return config.Devices([]config.Placement{p}) }

// Tried records whether the driver reported the memory of a process that certainly used a
// device: a probe, or a task process. If it did not, no budget is watched there, whatever
// the driver's version promises. After Report, Tried logs that once.
func (e *Enforcer) Tried(uuid string, seen bool) {
	if _, err := e.devices.ProcessMemory(uuid); err != nil {
		return // it lists no process now, which the watch reports and which may pass
	}
	if !e.watch.tried(uuid, seen) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.placements {
		_, reported := e.enforced[p.Name]
		if reported && p.Memory > 0 && slices.ContainsFunc(devices(p), func(d gpu.Device) bool { return d.UUID == uuid }) {
			e.enforced[p.Name] = e.inForce(p)
			e.reportPool(p)
		}
	}
}

// Report tells the operator what keeps each pool within its budget, and whether the
// devices have room for it now.
func (e *Enforcer) Report() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.placements {
		e.enforced[p.Name] = e.inForce(p)
		if p.Memory > 0 {
			e.reportPool(p)
		}
	}
	wanted := budgets(e.placements)
	for _, d := range config.Devices(e.placements) {
		if status, err := e.devices.Status(d.UUID); err == nil && status.Memory.Total > 0 {
			e.reportOthers(d, wanted[d.UUID], status)
		}
	}
}

// Without budgets on a GPU, Report warns if others hold at least 1/takenPart of it.
const takenPart = 4

// reportOthers warns when the budgets on a device do not fit now, before any task runs,
// or when others hold much of a GPU without budgets.
func (e *Enforcer) reportOthers(d gpu.Device, wanted gpumux.Size, now gpu.Status) {
	text, advice := now.Holders(), "end what else uses it, or choose devices, of which free are those with room"
	switch {
	case wanted == 0 && (d.Kind == gpu.KindCPU || now.Memory.Held() < now.Memory.Total/takenPart), wanted > 0 && uint64(wanted) <= now.Memory.Free:
		return
	case wanted > 0:
		text = fmt.Sprintf("the budgets on it are %s in all, but only %s are free now: %s", wanted, gpumux.Size(now.Memory.Free), text)
		advice += ", or lower memory or slots"
	}
	e.notices.Warn(e.log, text, zap.Stringer("device", d), zap.String("why", advice))
}

// reportPool says what keeps a pool within its budget.
func (e *Enforcer) reportPool(p config.Placement) {
	m := e.enforced[p.Name]
	text := fmt.Sprintf("budget %s enforced by: %s", p.Memory, strings.Join(m.list, ", "))
	if m.lack == "" {
		e.log.Info(text, zap.String("pool", p.Name))
		return
	}
	rest := " only; a task that allocates past its framework takes from its neighbours"
	if len(m.list) > 1 { // MIG or MPS
		rest = ", without the watch: no item has a peak"
	}
	e.notices.Warn(e.log, text+rest, zap.String("pool", p.Name), zap.String("why", m.lack))
}

// budgets is the sum of the budgets on each device, by UUID.
func budgets(placements []config.Placement) map[string]gpumux.Size {
	sums := map[string]gpumux.Size{}
	for _, p := range placements {
		for _, d := range devices(p) {
			sums[d.UUID] += p.Memory / gpumux.Size(p.GPUsPerSlot) * gpumux.Size(p.MinSlots())
		}
	}
	return sums
}
