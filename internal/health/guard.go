// Package health decides which devices may take work.
//
// It owns the probe, a throw-away process that tries a device, and the cordons: a device
// that failed gets no new calls until the driver and a probe say that it works. It never
// ends a call and resets nothing. A Guard stops with the context of Run, a Probe within
// the prober's limit.
package health

import (
	"cmp"
	"context"
	"errors"
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

// Driver answers the guard about devices; *gpu.Inventory does.
type Driver interface {
	Watch(ctx context.Context, emit func(gpu.Event)) error
	Status(uuid string) (gpu.Status, error)
	Recovery(uuid string) (gpu.Action, error)
}

// recheckEvery is the time between two checks of cordoned devices.
const recheckEvery = 10 * time.Second

// Guard keeps new calls off devices that failed, and lets them back when they work again.
type Guard struct {
	driver Driver
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

	// restored asks for a check of cordoned devices at once.
	restored chan struct{}
	probes   singleflight.Group
	// probed has the devices whose first probe is in the log.
	probed sync.Map

	// mu is held while an event cordons, and while a device comes back.
	mu sync.Mutex
	// counts are the events that called for a cordon, by UUID.
	counts map[string]int
}

type guarded struct {
	pool *pool.Pool
	config.Group
}

// New makes a guard that tries devices with try.
func New(driver Driver, try func(ctx context.Context, uuid string) Probe, log *zap.Logger) *Guard {
	return &Guard{
		driver: driver, try: try, log: log, Counted: func(string, string) {},
		Others: func(string, config.Group) (string, bool) { return "", false }, restored: make(chan struct{}, 1), counts: map[string]int{},
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
			if _, reason, why := g.fault(ctx, group.Group); why != "" {
				g.cordon(group, reason, why)
			}
		})
	}
	all.Wait()
}

// Run watches until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := g.driver.Watch(ctx, g.observe); err != nil {
			g.log.Warn("device events are not watched; failures are seen only when a task meets them", zap.Error(err))
		}
	})
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.restored:
		case <-tick.C:
		}
		g.recheck(ctx)
	}
}

// observe cordons the devices of an event that calls for it.
func (g *Guard) observe(e gpu.Event) {
	g.log.Warn("device event", zap.String("device", e.UUID), zap.String("kind", string(e.Kind)), zap.Uint64("xid", e.Xid),
		zap.String("action", string(e.Action)))
	if e.Kind == gpu.EventRestored {
		select {
		case g.restored <- struct{}{}:
		default: // a check is due already
		}
		return
	}
	if !e.Action.Cordon() {
		return
	}
	why := string(e.Kind)
	if e.Xid != 0 {
		why = fmt.Sprintf("Xid %d", e.Xid)
	}
	why += "; " + e.Action.HintFor(cmp.Or(e.GPU, e.UUID))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[e.UUID]++
	for _, group := range g.groups {
		if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == e.UUID || d.Parent == e.UUID }) {
			g.cordon(group, string(e.Kind), why)
		}
	}
}

func (g *Guard) cordon(group guarded, reason, why string) {
	if !group.pool.Cordon(group.Name, why) {
		return
	}
	g.Counted(group.pool.Name, reason)
	g.Notices.Warn(g.log, "device cordoned", zap.String("pool", group.pool.Name), zap.String("device", group.Name), zap.String("why", why))
	if group.pool.Load("").Slots == 0 {
		g.Notices.Warn(g.log, "the pool has no healthy device here; maps wait for one, or for another worker, or go on in their next pool",
			zap.String("pool", group.pool.Name))
	}
}

// recheck uncordons the devices that work again.
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

// recovered uncordons a group if the driver asks for no repair and the probes pass. If
// the driver cannot tell, a device with an event stays cordoned until the worker
// restarts.
func (g *Guard) recovered(ctx context.Context, group guarded) bool {
	g.mu.Lock()
	before := g.eventsOn(group)
	g.mu.Unlock()
	if _, full := g.Others(group.pool.Name, group.Group); full {
		return false
	}
	for _, d := range group.Devices {
		if _, err := g.driver.Status(d.UUID); err != nil {
			return false
		}
		action, err := g.driver.Recovery(cmp.Or(d.Parent, d.UUID))
		if errors.Is(err, errors.ErrUnsupported) && before == 0 {
			action, err = gpu.ActionNone, nil
		}
		if err != nil || action.Cordon() || g.probe(ctx, d.UUID).Sick() {
			return false
		}
	}
	if ctx.Err() != nil {
		return false
	}
	// The probe may have caused an event. Under the lock it is either counted here or
	// cordons again later.
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.eventsOn(group) == before && group.pool.Uncordon(group.Name)
}

// eventsOn counts the events so far that called for a cordon of a group's devices. The
// caller holds the lock.
func (g *Guard) eventsOn(group guarded) (n int) {
	for _, d := range group.Devices {
		n += g.counts[d.UUID]
		if d.Parent != "" {
			n += g.counts[d.Parent]
		}
	}
	return n
}
