package workers

import (
	"github.com/gpumux/gpumux"
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

// seats are a pool's slots now.
func seats(p *pool.Pool) (all []gpumux.SlotInfo) {
	p.Each(func(h *pool.Handle, holder string) {
		stats := h.Stats()
		all = append(all, gpumux.SlotInfo{Name: h.Name, Device: h.Group, State: string(h.State()), Task: h.Task(), PID: h.PID(), Map: holder,
			Held: gpumux.Size(stats.Held), Items: stats.Items, Faults: h.Faults.Load()})
	})
	return all
}
