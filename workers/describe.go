package workers

import (
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/pool"
)

// Describe lists what the worker offers now.
func (w *Worker) Describe() contract.WorkerInfo {
	d := contract.WorkerInfo{Identity: w.identity, Version: w.o.Version, Host: w.host, Store: w.storeURL,
		Tasks: w.tasks.Names(), Modes: w.tasks.Modes(), Notices: w.notices.All()}
	for i, p := range w.placements {
		info := contract.PoolInfo{Name: p.Name, Slots: p.MinSlots() * len(p.Groups), Memory: p.Memory, Mode: p.Mode}
		if w.memory != nil {
			info.Means = w.memory.Means(p.Name)
		}
		if p.Auto() {
			info.MaxSlots = p.MaxSlots * len(p.Groups)
			if i < len(w.pools) {
				info.Slots = w.pools[i].Size() * len(p.Groups)
			}
		}
		if i < len(w.pools) {
			info.Busy, info.Seats, info.Cordoned = w.pools[i].Load().Busy, seats(w.pools[i]), w.pools[i].Cordons()
			info.Computing = w.meter.History(p.Groups)
		}
		for _, g := range p.Groups {
			info.Devices = append(info.Devices, g.Name)
		}
		d.Pools = append(d.Pools, info)
	}
	return d
}

func seats(p *pool.Pool) (all []contract.SlotInfo) {
	p.Each(func(h *pool.Seat, holder string) {
		stats := h.Stats()
		info := contract.SlotInfo{Name: h.Name, Device: h.Group, State: string(h.State()), Task: h.Task(), PID: h.PID(), Map: holder,
			Held: gpumux.Size(stats.Held), Items: stats.Items, Faults: h.Faults.Load()}
		if r := stats.Running; r != nil {
			info.For, info.Progress = gpumux.Duration(max(time.Millisecond, time.Since(r.Began).Round(time.Millisecond))), r.Progress
			info.Item, info.Map = &r.Index, r.Map
		}
		if s := stats.Starting; s != nil {
			info.Task, info.For = s.Task, gpumux.Duration(max(time.Millisecond, time.Since(s.Began).Round(time.Millisecond)))
		}
		all = append(all, info)
	})
	return all
}
