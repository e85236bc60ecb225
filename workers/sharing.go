package workers

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/sharing"
)

type shareKey struct{ pool, group string }

func (w *Worker) shareDevices(ctx context.Context) error {
	w.sharing = &sharing.Host{Log: w.log}
	w.shares = map[shareKey]sharing.Share{}
	for _, p := range w.placements {
		for _, g := range p.Groups {
			use := sharing.Use{Slots: p.MaxSlots, PerSlot: p.GPUsPerSlot, Auto: p.Auto(), Devices: g.Devices}
			share, err := sharing.Mode(p.Sharing).Prepare(ctx, w.sharing, use)
			if err != nil {
				return fmt.Errorf("pool %s: %w", p.Name, err)
			}
			w.shares[shareKey{p.Name, g.Name}] = share
		}
	}
	return nil
}

func (w *Worker) tryDevice(ctx context.Context, uuid string) health.Probe {
	if w.inventory.Static() {
		return health.Probe{Untried: "it was given, not found on this host"}
	}
	prober := health.Prober{Python: w.tasks.Interpreter(), Home: w.home}
	for _, p := range w.placements {
		for _, g := range p.Groups {
			if !slices.ContainsFunc(g.Devices, func(d gpu.Device) bool { return d.UUID == uuid }) {
				continue
			}
			share := w.shares[shareKey{p.Name, g.Name}]
			prober.Env = share.Env(p.Memory, false)
			if err := share.Await(ctx); err != nil {
				return health.Probe{Untried: err.Error()}
			}
		}
	}
	found := prober.Try(ctx, uuid)
	if found.Code >= 805 && found.Code <= 807 { // between process and MPS server
		found.OK, found.Untried = false, found.String()
	}
	if found.Blind || found.Context > 0 {
		w.memory.Tried(uuid, !found.Blind)
	}
	return found
}
