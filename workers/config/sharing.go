package config

import (
	"fmt"
	"slices"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/sharing"
)

// Use is what a pool's sharing is asked for.
func (p Placement) Use(devices []gpu.Device) sharing.Use {
	return sharing.Use{Slots: p.Most, PerSlot: p.GPUsPerSlot, Auto: p.Auto(), Memory: p.Memory, Threads: p.Threads, Devices: devices}
}

// checkSharing reports what the pools' ways to share cannot work with.
func (c Config) checkSharing(placements []Placement, r *report) {
	users, numbers := false, false
	for _, t := range c.Tasks {
		users, numbers = users || t.User != "", numbers || t.VisibleDevices == "index"
	}
	for _, p := range placements {
		at := fmt.Sprintf("pools[%d]", p.index)
		use := p.Use(p.devices())
		use.OtherUser, use.ByIndex = users || p.User != "", numbers
		var said []sharing.Problem
		for _, problem := range p.Sharing.Check(use) {
			if !slices.Contains(said, problem) {
				said = append(said, problem)
				r.add(at+"."+problem.Field, "%s", problem.Text)
			}
		}
	}
}
