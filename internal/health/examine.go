package health

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/workers/config"
)

// Examine probes a group of devices after a fault that may be due to them. It returns why
// the group is cordoned now, or "".
func (g *Guard) Examine(ctx context.Context, p *pool.Pool, name string) string {
	at := slices.IndexFunc(g.groups, func(group guarded) bool { return group.pool == p && group.Name == name })
	if at < 0 {
		return ""
	}
	sick, why := g.fault(ctx, g.groups[at].Group)
	if why == "" || ctx.Err() != nil {
		return ""
	}
	for _, group := range g.groups {
		if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == sick }) {
			g.cordon(group, reasonProbe, why)
		}
	}
	return why
}

// Crowd says what others hold on a group of devices, after an item ran out of its memory.
// Full: they leave less than a slot's budget, so the group is cordoned now, and comes
// back when they leave more.
func (g *Guard) Crowd(p *pool.Pool, name string) (text string, full bool) {
	at := slices.IndexFunc(g.groups, func(group guarded) bool { return group.pool == p && group.Name == name })
	if at < 0 {
		return "", false
	}
	if text, full = g.Others(p.Name, g.groups[at].Group); full {
		g.cordon(g.groups[at], reasonFull, text)
	}
	return text, full
}

const (
	reasonProbe = "probe"
	reasonFull  = "full"
)

func Reasons() []string { return []string{reasonProbe, reasonFull} }

// fault returns which of a group's devices is sick, and why. Why is empty if none is.
func (g *Guard) fault(ctx context.Context, group config.Group) (uuid, why string) {
	for _, d := range group.Devices {
		if probe := g.probe(ctx, d.UUID); probe.Sick() {
			return d.UUID, fmt.Sprintf("a probe of %s found: %s; %s", d.UUID, probe, probe.Hint())
		}
	}
	return "", ""
}

// probe tries a device, or waits for the probe under way. It logs the first finding.
func (g *Guard) probe(ctx context.Context, uuid string) Probe {
	found := g.probes.DoChan(uuid, func() (any, error) {
		// Other callers may wait for this probe, so it goes on when this one leaves.
		found := g.try(context.WithoutCancel(ctx), uuid)
		if _, logged := g.probed.LoadOrStore(uuid, true); !logged {
			level := zap.InfoLevel
			if found.Untried != "" {
				level = zap.WarnLevel
			}
			g.log.Log(level, "device probed", zap.String("device", uuid), zap.Stringer("found", found))
		}
		return found, nil
	})
	select {
	case one := <-found:
		return one.Val.(Probe)
	case <-ctx.Done():
		return Probe{Device: uuid, Untried: context.Cause(ctx).Error()}
	}
}
