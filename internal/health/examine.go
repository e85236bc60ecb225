package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/workers/config"
)

// Examine is for a group of devices that a fault may be due to. It asks the driver and probes the devices, and returns why the group is
// cordoned now, or "" if its devices work. Lost says that the fault is about a lost device, which counts where no probe can be tried. The
// CPU always works.
func (g *Guard) Examine(ctx context.Context, p *pool.Pool, name string, lost bool) string {
	at := slices.IndexFunc(g.groups, func(group guarded) bool { return group.pool == p && group.Name == name })
	if at < 0 {
		return ""
	}
	f := g.fault(ctx, g.groups[at].Group)
	if lost && f.why == "" && f.untried != "" {
		f.reason, f.why = string(gpu.EventLost), "a task found it lost, and it could not be probed: "+f.untried
	}
	if f.why == "" || ctx.Err() != nil {
		return ""
	}
	for _, group := range g.groups {
		if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == f.uuid }) {
			g.cordon(group.pool, group.Name, f.reason, f.why)
		}
	}
	return f.why
}

// sickness is which device fails, and why; else, of one that was not tried, why not.
type sickness struct{ uuid, reason, why, untried string }

// Reasons for a cordon beside the kinds of events.
const (
	reasonGone   = "gone"
	reasonSilent = "silent"
	reasonProbe  = "probe"
)

// Reasons are the kinds of what cordons devices.
func Reasons() []string {
	return []string{string(gpu.EventXid), string(gpu.EventECC), string(gpu.EventRecovery), string(gpu.EventLost), reasonGone, reasonSilent, reasonProbe}
}

// fault says which of a group's devices is sick; the zero value is none.
func (g *Guard) fault(ctx context.Context, group config.Group) (none sickness) {
	for _, d := range group.Devices {
		_, err := g.driver.Status(d.UUID)
		switch {
		case errors.Is(err, gpu.ErrLost):
			return sickness{uuid: d.UUID, reason: string(gpu.EventLost), why: err.Error()}
		case errors.Is(err, gpu.ErrSilent):
			return sickness{uuid: d.UUID, reason: reasonSilent, why: err.Error()}
		}
		parent := cmp.Or(d.Parent, d.UUID)
		if action, err := g.driver.Recovery(parent); err == nil && action.Cordon() {
			return sickness{uuid: d.UUID, reason: string(gpu.EventRecovery),
				why: "the driver asks for: " + string(action) + "; " + action.HintFor(parent)}
		}
		probe := g.probe(ctx, d.UUID)
		if probe.Sick() {
			return sickness{uuid: d.UUID, reason: reasonProbe, why: fmt.Sprintf("a probe of %s found: %s; %s", d.UUID, probe, probe.Hint())}
		}
		if probe.Untried != "" {
			none = sickness{uuid: d.UUID, untried: probe.Untried}
		}
	}
	return none
}

// probe tries a device, or waits for who does.
func (g *Guard) probe(ctx context.Context, uuid string) Probe {
	g.mu.Lock()
	p := g.probing[uuid]
	if p != nil {
		select {
		case <-p.done:
			p = nil
		default:
		}
	}
	if p == nil {
		p = &probing{done: make(chan struct{})}
		g.probing[uuid] = p
		go func() {
			// Whoever waits too must not lose it with this caller.
			p.found = g.try(context.WithoutCancel(ctx), uuid)
			close(p.done)
		}()
	}
	g.mu.Unlock()
	select {
	case <-p.done:
		return p.found
	case <-ctx.Done():
		return Probe{Device: uuid, Untried: context.Cause(ctx).Error()}
	}
}
