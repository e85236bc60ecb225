package workers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

const (
	meterEvery = time.Second
	// A history is the shares of time of the last minute, each of some readings.
	historyLen, historyOf = 12, 5
)

// meter reads once a second what each GPU does on which calls run, and gives each call an
// equal share of it.
type meter struct {
	life context.Context
	load func(uuid string) (gpu.Load, error)

	mu      sync.Mutex // guards what follows; not held while the driver is asked
	devices map[string]*metered
}

type metered struct {
	calls    map[*metering]bool
	followed bool
	// shared is until when the calls have their shares.
	shared time.Time
	// read is when last was read; zero where it does not count.
	read  time.Time
	last  gpu.Load
	watts float64
	// history has percents, the oldest first; sum is of the readings since.
	history  []int
	sum      float64
	readings int
}

// metering is the share of one call.
type metering struct {
	meter *meter
	uuids []string
	began time.Time
	use   gpumux.GPUUse
}

// Begin begins the share of a call that has these devices.
func (m *meter) Begin(uuids []string) *metering {
	call := &metering{meter: m, began: time.Now()}
	if uuids[0] == gpu.CPU {
		return call
	}
	call.uuids = uuids
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uuid := range uuids {
		d := m.devices[uuid]
		if d == nil {
			d = &metered{calls: map[*metering]bool{}}
			m.devices[uuid] = d
		}
		d.share(time.Now())
		d.calls[call] = true
		if !d.followed {
			d.followed, d.read, d.history, d.sum, d.readings = true, time.Time{}, nil, 0, 0
			go m.follow(uuid, d)
		}
	}
	return call
}

// End returns the share of a call, or nil where the driver told nothing meanwhile.
func (c *metering) End(price float64) *gpumux.GPUUse {
	if c.uuids == nil {
		return nil
	}
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	for _, uuid := range c.uuids {
		d := c.meter.devices[uuid]
		d.share(time.Now())
		delete(d.calls, c)
	}
	c.use.Cost, c.use.Slots = price*time.Duration(c.use.Time).Hours(), gpumux.Duration(time.Since(c.began))
	return c.use.Known()
}

// follow reads a device for as long as it has calls. One of which the driver does not
// tell is not asked again.
func (m *meter) follow(uuid string, d *metered) {
	for m.life.Err() == nil {
		load, err := m.load(uuid)
		m.mu.Lock()
		d.take(load, err, time.Now())
		untold := errors.Is(err, errors.ErrUnsupported)
		d.followed = len(d.calls) > 0 || untold
		over := !d.followed || untold
		m.mu.Unlock()
		if over {
			return
		}
		select {
		case <-time.After(meterEvery):
		case <-m.life.Done():
		}
	}
}

func (d *metered) take(load gpu.Load, err error, now time.Time) {
	if err != nil {
		d.share(now)
		d.read = time.Time{}
		return
	}
	d.watts = max(0, load.Power)
	if passed := now.Sub(d.read).Seconds(); !d.read.IsZero() && load.Energy > d.last.Energy && passed > 0 {
		d.watts = (load.Energy - d.last.Energy) / passed
	}
	d.read, d.last = now, load
	d.share(now)
	d.sum += load.Computing
	if d.readings++; d.readings == historyOf {
		d.history = append(d.history[max(0, len(d.history)-historyLen+1):], int(100*d.sum/historyOf))
		d.sum, d.readings = 0, 0
	}
}

// share gives the calls their shares of the time until now.
func (d *metered) share(now time.Time) {
	each := now.Sub(d.shared) / time.Duration(max(1, len(d.calls)))
	d.shared = now
	if d.read.IsZero() {
		return
	}
	for call := range d.calls {
		call.use.Time += gpumux.Duration(each)
		call.use.Computing += gpumux.Duration(float64(each) * d.last.Computing)
		call.use.Energy += each.Seconds() * d.watts
		if d.last.Slowed {
			call.use.Slowed += gpumux.Duration(each)
		}
	}
}

// History is the percents of the time in which GPUs with calls computed lately, five
// seconds each.
func (m *meter) History(groups []config.Group) map[string][]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string][]int{}
	for _, g := range groups {
		if d := m.devices[g.Name]; d != nil && d.followed && d.history != nil {
			all[g.Name] = slices.Clone(d.history)
		}
	}
	return all
}
