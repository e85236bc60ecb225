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
	groups []guarded
	every  time.Duration // between two checks of cordoned devices
	log    *zap.Logger

	mu      sync.Mutex
	suspect map[string]gpu.Action // by UUID: what an event asked for
}

// New makes a guard that checks cordoned devices every so often.
func New(driver Driver, every time.Duration, log *zap.Logger) *Guard {
	return &Guard{health: driver, every: every, log: log, suspect: map[string]gpu.Action{}}
}

// Add guards a pool's groups of devices. Call it before Run.
func (g *Guard) Add(p *pool.Pool, groups []config.Group) {
	for _, group := range groups {
		g.groups = append(g.groups, guarded{p, group})
	}
}

type guarded struct {
	pool *pool.Pool
	config.Group
}

// Run watches until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := g.health.Watch(ctx, g.observe); err != nil {
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
			g.recheck()
		}
	}
}

func (g *Guard) observe(e gpu.Event) {
	g.log.Warn("device event", zap.String(logkey.Device, e.UUID), zap.String(logkey.Kind, string(e.Kind)), zap.Uint64("xid", e.Xid),
		zap.String("action", string(e.Action)))
	if e.Kind == gpu.EventRestored {
		g.recheck()
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
	for _, group := range g.groups {
		if slices.ContainsFunc(group.Devices, func(d gpu.Device) bool { return d.UUID == e.UUID || d.Parent == e.UUID }) {
			g.cordon(group.pool, group.Name, why)
		}
	}
}

// Lost reports that a task met a lost device. The CPU is never lost.
func (g *Guard) Lost(p *pool.Pool, name, why string) {
	for _, group := range g.groups {
		if group.pool == p && group.Name == name && group.Devices[0].Kind != gpu.KindCPU {
			g.cordon(p, name, why)
		}
	}
}

func (g *Guard) cordon(p *pool.Pool, name, why string) {
	if p.Cordon(name, why) {
		g.log.Error("device cordoned", zap.String(logkey.Pool, p.Name), zap.String(logkey.Device, name), zap.String(logkey.Why, why))
	}
}

// recheck uncordons the devices that work again.
func (g *Guard) recheck() {
	for _, group := range g.groups {
		p := group.pool
		if p.Cordoned(group.Name) && !slices.ContainsFunc(group.Devices, g.failed) && p.Uncordon(group.Name) {
			g.log.Info("device works again", zap.String(logkey.Pool, p.Name), zap.String(logkey.Device, group.Name))
		}
	}
}

// failed asks the driver whether a device must stay cordoned. If the driver cannot tell, a device that needed a reset stays so: only a
// restart of the worker, after the reset, brings it back.
func (g *Guard) failed(d gpu.Device) bool {
	if _, err := g.health.Status(d.UUID); err != nil {
		return true
	}
	parent := cmp.Or(d.Parent, d.UUID)
	action, err := g.health.Recovery(parent)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return hard(g.suspect[d.UUID]) || hard(g.suspect[parent])
	case err != nil || action.Cordon():
		return true
	}
	delete(g.suspect, d.UUID)
	delete(g.suspect, parent)
	return false
}

func hard(a gpu.Action) bool { return a == gpu.ActionReset || a == gpu.ActionReboot }
