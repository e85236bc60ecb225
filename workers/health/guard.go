package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/pool"
)

// Driver is what the guard asks about devices; *gpu.Inventory is one.
type Driver interface {
	Watch(ctx context.Context, emit func(gpu.Event)) error
	Status(uuid string) (gpu.Status, error)
	Recovery(uuid string) (gpu.Action, error)
}

// Guard keeps new calls off devices that failed, and lets them back when the driver says that they work again.
type Guard struct {
	health Driver
	pools  []guarded
	every  time.Duration // between two looks at cordoned devices
	log    *zap.Logger

	mu      sync.Mutex
	suspect map[string]gpu.Action // by UUID: what an event asked for
}

// New looks at cordoned devices every so often.
func New(driver Driver, every time.Duration, log *zap.Logger) *Guard {
	return &Guard{health: driver, every: every, log: log, suspect: map[string]gpu.Action{}}
}

// Add has it guard a pool on groups of devices, before it runs.
func (g *Guard) Add(p *pool.Pool, groups []config.Group) {
	g.pools = append(g.pools, guarded{p, groups})
}

type guarded struct {
	pool   *pool.Pool
	groups []config.Group
}

// Run watches until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := g.health.Watch(ctx, g.event); err != nil {
			g.log.Warn("device events are not watched; failures are seen only when a task meets them", zap.Error(err))
		}
	})
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.look()
		}
	}
}

func (g *Guard) event(e gpu.Event) {
	g.log.Warn("device event", zap.String(logkey.Device, e.UUID), zap.String(logkey.Kind, string(e.Kind)), zap.Uint64("xid", e.Xid),
		zap.String("action", string(e.Action)))
	if e.Kind == gpu.EventRestored {
		g.look()
		return
	}
	if !e.Action.Cordon() {
		return
	}
	why := string(e.Kind)
	if e.Xid != 0 {
		why = fmt.Sprintf("Xid %d", e.Xid)
	}
	why += "; " + e.Action.Hint()
	g.mu.Lock()
	g.suspect[e.UUID] = e.Action
	g.mu.Unlock()
	for _, p := range g.pools {
		for _, group := range p.groups {
			if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == e.UUID || d.Parent == e.UUID }) {
				g.cordon(p.pool, group.Name, why)
			}
		}
	}
}

// Lost is called when a task met a lost device. The CPU is never lost.
func (g *Guard) Lost(p *pool.Pool, name, why string) {
	for _, in := range g.pools {
		for _, group := range in.groups {
			if in.pool == p && group.Name == name && group.Devices[0].Kind != gpu.KindCPU {
				g.cordon(p, name, why)
			}
		}
	}
}

func (g *Guard) cordon(p *pool.Pool, name, why string) {
	if p.Cordon(name, why) {
		g.log.Error("device cordoned", zap.String(logkey.Pool, p.Name), zap.String(logkey.Device, name), zap.String(logkey.Why, why))
	}
}

// look restores what answers again.
func (g *Guard) look() {
	for _, p := range g.pools {
		for _, group := range p.groups {
			if p.pool.Cordoned(group.Name) && !slices.ContainsFunc(group.Devices, g.sick) && p.pool.Uncordon(group.Name) {
				g.log.Info("device works again", zap.String(logkey.Pool, p.pool.Name), zap.String(logkey.Device, group.Name))
			}
		}
	}
}

// sick asks the driver. A driver that can not tell what a device needs leaves one that asked for a reset cordoned: only a
// restart of the worker, after the reset, takes it back.
func (g *Guard) sick(d gpu.Device) bool {
	if _, err := g.health.Status(d.UUID); err != nil {
		return true
	}
	parent := d.UUID
	if d.Parent != "" {
		parent = d.Parent
	}
	g.mu.Lock()
	asked := g.suspect[d.UUID]
	if hard(g.suspect[parent]) {
		asked = g.suspect[parent]
	}
	g.mu.Unlock()
	action, err := g.health.Recovery(parent)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return hard(asked)
	case err != nil:
		return true
	case action.Cordon():
		return true
	}
	g.mu.Lock()
	delete(g.suspect, d.UUID)
	delete(g.suspect, parent)
	g.mu.Unlock()
	return false
}

func hard(a gpu.Action) bool { return a == gpu.ActionReset || a == gpu.ActionReboot }
