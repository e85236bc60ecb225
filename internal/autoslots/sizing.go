// Package autoslots owns the number of slots of pools with slots: auto. A Sizing measures
// calls and resizes its pool to the most throughput. It never ends a process, and gives a
// pool no more slots than devices have memory for. It stops when the context of Run ends.
package autoslots

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/workers/config"
)

const (
	// measureFor is the valid time of a measurement.
	measureFor = time.Second
	// roomShare is the share of a device's free memory that more slots may plan with.
	roomShare = 0.9
)

// statuses answers Sizing about devices; *gpu.Inventory does.
type statuses interface {
	Status(uuid string) (gpu.Status, error)
}

// Sizing finds by measurement how many slots per device a pool with slots: auto has. Each
// task has a search, which observes the meter's measurements. One goroutine runs it.
type Sizing struct {
	pool    *pool.Pool
	meter   *meter
	groups  []config.Group
	most    int
	memory  gpumux.Size // budget of a slot on each of its devices
	reserve gpumux.Size // of each device
	devices statuses
	log     *zap.Logger

	// full gets the task of a call that ran out of device memory.
	full chan string

	tasks      map[string]*search
	task       string
	open, kept int // of the last Resize
}

// New begins with one slot per device. Call Run next.
func New(p *pool.Pool, placed config.Placement, devices statuses, log *zap.Logger) *Sizing {
	s := &Sizing{
		pool: p, meter: newMeter(measureFor), groups: placed.Groups, most: placed.Most, devices: devices, log: log,
		memory: placed.Memory / gpumux.Size(placed.GPUsPerSlot), reserve: placed.Reserve, full: make(chan string, 1), tasks: map[string]*search{},
	}
	s.resize(1, 1)
	return s
}

func (s *Sizing) resize(open, kept int) {
	s.open, s.kept = open, kept
	s.pool.Resize(open, kept)
	s.meter.reset(s.slots())
}

// slots is how many slots may run calls.
func (s *Sizing) slots() int { return s.pool.Load("").Slots - s.pool.Load("").Leased }

// Begin is called before a call runs in its slot; whole: it has the devices to itself. A
// nil Sizing measures nothing.
func (s *Sizing) Begin(h *pool.Seat, task string, whole bool) *Stint {
	if s == nil {
		return nil
	}
	return s.meter.newStint(s.pool, h, task, whole)
}

// Failed gets the fault that ended a call. With a budget, OOM is the item's own fault.
func (s *Sizing) Failed(task string, kind gpumux.FaultKind) {
	if s == nil || s.memory > 0 || kind != gpumux.FaultDeviceOOM && kind != gpumux.FaultHostOOM {
		return
	}
	select {
	case s.full <- task:
	default: // one is enough
	}
}

// Run observes measurements until ctx ends.
func (s *Sizing) Run(ctx context.Context) {
	tick := time.NewTicker(s.meter.length)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case found := <-s.meter.measured:
			if s.meter.current(found) {
				s.observe(found)
			}
		case task := <-s.full:
			s.overflow(task)
		case <-tick.C:
			// A device may have been cordoned, or have come back.
			s.meter.reset(s.slots())
		}
	}
}

func (s *Sizing) observe(found measurement) {
	tried := s.searchFor(found.task)
	s.task = found.task
	if tried.now == s.open { // else the previous task had another number
		tried.observe(found.rate * float64(s.open) / float64(found.want))
	}
	s.apply(tried)
}

// overflow reduces the slots because a device's memory was too small for them.
func (s *Sizing) overflow(task string) {
	tried := s.searchFor(task)
	if task != s.task || tried.now != s.open || !tried.overflow() {
		return
	}
	s.log.Warn(fmt.Sprintf("pool %s: the memory of a device does not do for %d slots of task %s; it goes on with %d", s.pool.Name, s.open,
		task, tried.now), zap.String("pool", s.pool.Name), zap.String("task", task))
	s.apply(tried)
}

// searchFor is the search of a task; a new one begins with the number in use.
func (s *Sizing) searchFor(task string) *search {
	tried := s.tasks[task]
	if tried == nil {
		tried = newSearch(s.open, s.most)
		tried.room = func(from, to int) int { return s.room(task, from, to) }
		s.tasks[task] = tried
	}
	return tried
}

// apply gives the pool a search's slots. Processes stay while two numbers are compared.
func (s *Sizing) apply(tried *search) {
	if tried.resting && tried.logged != tried.at {
		tried.logged = tried.at
		s.log.Info(fmt.Sprintf("pool %s: %s per device for task %s: %s items/s", s.pool.Name, english.Plural(tried.at, "slot", ""), s.task,
			humanize.CommafWithDigits(math.Exp(tried.reference)*float64(len(s.groups)), 2)), zap.String("pool", s.pool.Name), zap.String("task", s.task), zap.Int("slots", tried.at))
	}
	if open, kept := tried.now, max(tried.at, tried.trial); open != s.open || kept != s.kept {
		s.resize(open, kept)
	}
}

// room is how many slots the free memory allows, up to a wanted number.
func (s *Sizing) room(task string, from, to int) int {
	per := float64(s.memory)
	if per == 0 {
		per = float64(s.meter.peak(task))
	}
	for _, g := range s.groups {
		for _, d := range g.Devices {
			status, err := s.devices.Status(d.UUID)
			if err != nil || status.Memory.Total == 0 {
				continue
			}
			need, free := per, float64(status.Memory.Free)
			if s.memory == 0 {
				// Budgets were counted against the reserve when the worker started.
				free = max(0, free-float64(s.reserve))
			}
			if s.memory == 0 && d.Kind != gpu.KindCPU {
				need = max(need+gpumux.ContextRoom, float64(status.Memory.Total-status.Memory.Free)/float64(from))
			}
			if need > 0 {
				to = min(to, from+int(math.Floor(roomShare*free/need)))
			}
		}
	}
	return to
}
