// Package health decides which devices may take work.
//
// It owns the probe, a throw-away process that tries a device, and the cordons: a device
// that failed gets no new calls until a probe says that it works. It never ends a call
// and resets nothing. A Guard stops with the context of Run, a Probe within the prober's
// limit.
package health

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/workers/config"
)

const recheckEvery = 10 * time.Second

// Guard keeps new calls off devices that failed, and lets them back when they work again.
type Guard struct {
	status func(uuid string) (gpu.Status, error)
	try    func(ctx context.Context, uuid string) Probe
	groups []guarded
	log    *zap.Logger
	// Notices is set before Begin. Default: nobody keeps them.
	Notices *notice.List
	// Counted is called for each cordon. Set it before Begin. Default: nobody.
	Counted func(pool, reason string)
	// Others says what processes of others hold on a group, and whether they leave less than
	// a slot's budget. Set it before Begin. Default: nobody holds anything.
	Others func(pool string, group config.Group) (text string, full bool)

	probes singleflight.Group
	// probed has the devices whose first probe is in the log.
	probed sync.Map
}

type guarded struct {
	pool *pool.Pool
	config.Group
}

// New makes a guard that tries devices with try. Status is the driver's word about one.
func New(status func(uuid string) (gpu.Status, error), try func(ctx context.Context, uuid string) Probe, log *zap.Logger) *Guard {
	return &Guard{
		status: status, try: try, log: log, Counted: func(string, string) {},
		Others: func(string, config.Group) (string, bool) { return "", false },
	}
}

// Add guards a pool's groups of devices. Call it before Run.
func (g *Guard) Add(p *pool.Pool, groups []config.Group) {
	for _, group := range groups {
		if group.Devices[0].Kind != gpu.KindCPU {
			g.groups = append(g.groups, guarded{p, group})
		}
	}
}

// Begin probes all devices at once and cordons the sick ones, within the probe's limit.
func (g *Guard) Begin(ctx context.Context) {
	var all sync.WaitGroup
	for _, group := range g.groups {
		all.Go(func() {
			if _, why := g.fault(ctx, group.Group); why != "" {
				g.cordon(group, reasonProbe, why)
			}
		})
	}
	all.Wait()
}

// Run looks at cordoned devices until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	for tick := time.Tick(recheckEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			g.recheck(ctx)
		}
	}
}

func (g *Guard) cordon(group guarded, reason, why string) {
	if !group.pool.Cordon(group.Name, why) {
		return
	}
	g.Counted(group.pool.Name, reason)
	g.Notices.Warn(g.log, "device cordoned", zap.String("pool", group.pool.Name), zap.String("device", group.Name), zap.String("why", why))
	if group.pool.Load().Slots == 0 {
		g.Notices.Warn(g.log, "the pool has no healthy device here; maps wait for one, or for another worker, or go on in their next pool",
			zap.String("pool", group.pool.Name))
	}
}

func (g *Guard) recheck(ctx context.Context) {
	var all sync.WaitGroup
	for _, group := range g.groups {
		if group.pool.Cordoned(group.Name) {
			all.Go(func() {
				if g.recovered(ctx, group) {
					g.Notices.Warn(g.log, "device works again", zap.String("pool", group.pool.Name), zap.String("device", group.Name))
				}
			})
		}
	}
	all.Wait()
}

// recovered uncordons a group whose probes pass. One about which the driver says nothing
// is not probed: each probe may leave a process that hangs in the driver.
func (g *Guard) recovered(ctx context.Context, group guarded) bool {
	if _, full := g.Others(group.pool.Name, group.Group); full {
		return false
	}
	for _, d := range group.Devices {
		if _, err := g.status(d.UUID); err != nil || g.probe(ctx, d.UUID).Sick() {
			return false
		}
	}
	return ctx.Err() == nil && group.pool.Uncordon(group.Name)
}

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
