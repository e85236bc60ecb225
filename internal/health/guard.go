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
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/workers/config"
)

// Driver answers the guard about devices; *gpu.Inventory does.
type Driver interface {
	Watch(ctx context.Context, emit func(gpu.Event)) error
	Status(uuid string) (gpu.Status, error)
	Recovery(uuid string) (gpu.Action, error)
	Changes() (gone, come []gpu.Device, err error)
}

// listEvery is how often the devices are listed again.
const listEvery = 30 * time.Second

// longestPause is the most time between two probes of a cordoned device.
const longestPause = 5 * time.Minute

// Guard keeps new calls off devices that failed, and lets them back when they work again.
type Guard struct {
	driver Driver
	try    func(ctx context.Context, uuid string) Probe
	groups []guarded
	every  time.Duration // between two checks of cordoned devices
	log    *zap.Logger
	// Counted hears of each cordon: pool and reason. Set it before Begin. Default: nobody.
	Counted func(pool, reason string)

	// recheckNow asks for a check of cordoned devices at once.
	recheckNow chan struct{}
	// come are the new devices that were told of last.
	come string

	// events is held while an event cordons, and while a device comes back.
	events sync.Mutex

	mu     sync.Mutex
	counts map[string]int   // of events that asked for something, by UUID
	resets map[string]bool  // by UUID of an event: whether one asked for a reset, or for more
	probed map[string]bool  // by UUID: whether the log has what was found
	pauses map[string]pause // by group
	probes singleflight.Group
}

// pause is how long a cordoned group is left alone after a probe.
type pause struct {
	length time.Duration
	until  time.Time
}

type guarded struct {
	pool *pool.Pool
	config.Group
}

// New makes a guard that tries devices with try, and cordoned ones every so often.
func New(driver Driver, try func(ctx context.Context, uuid string) Probe, every time.Duration, log *zap.Logger) *Guard {
	return &Guard{
		driver: driver, try: try, every: every, log: log, Counted: func(string, string) {}, recheckNow: make(chan struct{}, 1),
		counts: map[string]int{}, resets: map[string]bool{}, probed: map[string]bool{}, pauses: map[string]pause{},
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
			if f := g.fault(ctx, group.Group); f.why != "" {
				g.cordon(group.pool, group.Name, f.reason, f.why)
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
	tick, list := time.NewTicker(g.every), time.NewTicker(listEvery)
	defer tick.Stop()
	defer list.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-list.C:
			g.compare()
		case <-g.recheckNow:
		case <-tick.C:
		}
		g.recheck(ctx)
	}
}

func (g *Guard) observe(e gpu.Event) {
	g.log.Warn("device event", zap.String("device", e.UUID), zap.String("kind", string(e.Kind)), zap.Uint64("xid", e.Xid),
		zap.String("action", string(e.Action)))
	if e.Kind == gpu.EventRestored {
		g.mu.Lock()
		clear(g.pauses)
		g.mu.Unlock()
		select {
		case g.recheckNow <- struct{}{}:
		default: // it is asked for already
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
	g.events.Lock()
	defer g.events.Unlock()
	g.mu.Lock()
	g.counts[e.UUID]++
	reset := e.Action != gpu.ActionDrain && e.Action != gpu.ActionDrainP2P
	milder := g.resets[e.UUID] && !reset // the reason for a reset stands
	g.resets[e.UUID] = g.resets[e.UUID] || reset
	g.mu.Unlock()
	for _, group := range g.groups {
		if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == e.UUID || d.Parent == e.UUID }) &&
			(!milder || !group.pool.Cordoned(group.Name)) {
			g.cordon(group.pool, group.Name, string(e.Kind), why)
		}
	}
}

// compare cordons devices that are gone, such as a MIG instance that was destroyed, and
// tells of new ones, which the worker uses after its next start.
func (g *Guard) compare() {
	gone, come, err := g.driver.Changes()
	if err != nil {
		return // the driver's silence is looked at elsewhere
	}
	for _, d := range gone {
		for _, group := range g.groups {
			if slices.ContainsFunc(group.Devices, func(o gpu.Device) bool { return o.UUID == d.UUID }) {
				g.cordon(group.pool, group.Name, reasonGone, "the driver no longer lists it; "+
					"if that is meant, such as after a change of MIG instances, start the worker again")
			}
		}
	}
	names := fmt.Sprint(come)
	if names != g.come && len(come) > 0 {
		g.log.Warn("new devices; the worker uses them after its next start", zap.Stringers("device", come))
	}
	g.come = names
}

func (g *Guard) cordon(p *pool.Pool, name, reason, why string) {
	if p.Cordon(name, why) {
		g.Counted(p.Name, reason)
		g.mu.Lock()
		delete(g.pauses, p.Name+" "+name)
		g.mu.Unlock()
		g.log.Error("device cordoned", zap.String("pool", p.Name), zap.String("device", name), zap.String("why", why))
		if p.Load("").Slots == 0 {
			g.log.Error("the pool has no healthy device here; maps wait for one, or for another worker, or go on in their next pool",
				zap.String("pool", p.Name))
		}
	}
}

// recheck uncordons the devices that work again.
func (g *Guard) recheck(ctx context.Context) {
	var all sync.WaitGroup
	for _, group := range g.groups {
		if group.pool.Cordoned(group.Name) && g.due(group) {
			all.Go(func() {
				if g.recovered(ctx, group) {
					g.log.Info("device works again", zap.String("pool", group.pool.Name), zap.String("device", group.Name))
				}
			})
		}
	}
	all.Wait()
}

// due reports whether to look at a cordoned group now, and doubles the next pause.
func (g *Guard) due(group guarded) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := group.pool.Name + " " + group.Name
	p := g.pauses[key]
	if time.Now().Before(p.until) {
		return false
	}
	p.length = min(max(g.every, 2*p.length), longestPause)
	p.until = time.Now().Add(p.length)
	g.pauses[key] = p
	return true
}

// recovered lets a group come back if the driver asks for nothing and probes pass. Where
// a driver cannot tell, a device that needed a reset stays cordoned until the worker
// starts anew.
func (g *Guard) recovered(ctx context.Context, group guarded) bool {
	before := g.eventsOn(group)
	for _, d := range group.Devices {
		status, err := g.driver.Status(d.UUID)
		if err != nil {
			return false
		}
		parent := cmp.Or(d.Parent, d.UUID)
		action, err := g.driver.Recovery(parent)
		untold := errors.Is(err, errors.ErrUnsupported)
		g.mu.Lock()
		own, told := g.resets[d.UUID]
		whole, toldWhole := g.resets[parent]
		g.mu.Unlock()
		reset := own || whole
		if untold && !reset && status.RemappedRows != nil && status.RemappedRows.Pending {
			reset = true
			group.pool.Cordon(group.Name, "a remapped row of "+d.UUID+" waits for a reset; "+gpu.ActionReset.HintFor(parent))
		}
		if untold && reset || !untold && (err != nil || action.Cordon()) {
			return false
		}
		if probe := g.probe(ctx, d.UUID); probe.Sick() || untold && (told || toldWhole) && !probe.OK {
			return false
		}
	}
	if ctx.Err() != nil {
		return false
	}
	// An event must either be seen here or come after: the probe itself may have caused it.
	g.events.Lock()
	defer g.events.Unlock()
	if g.eventsOn(group) != before {
		return false
	}
	g.mu.Lock()
	for _, d := range group.Devices {
		delete(g.resets, d.UUID)
		delete(g.resets, d.Parent)
	}
	g.mu.Unlock()
	return group.pool.Uncordon(group.Name)
}

// eventsOn counts the events on a group's devices so far that asked for something.
func (g *Guard) eventsOn(group guarded) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range group.Devices {
		n += g.counts[d.UUID]
		if d.Parent != "" {
			n += g.counts[d.Parent]
		}
	}
	return n
}
