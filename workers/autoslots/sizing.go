package autoslots

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/memory"
	"github.com/gpumux/gpumux/workers/pool"
)

const (
	// measureFor is the time for which all slots must have worked for a measurement.
	measureFor = time.Second
	// stale is the time without a call of a task after which measurements are not compared with earlier ones.
	stale = time.Minute
	// roomShare is the share of a device's free memory that more slots may plan with.
	roomShare = 0.9
)

// statuses is what Sizing asks about devices; *gpu.Inventory is one.
type statuses interface {
	Status(uuid string) (gpu.Status, error)
}

// Sizing finds by measurement how many slots per device a pool with slots: auto has: a search per task, which gets its
// measurements from the meter. One goroutine runs it.
type Sizing struct {
	pool    *pool.Pool
	meter   *meter
	groups  []config.Group
	most    int
	memory  gpumux.Size // budget of a slot on each of its devices
	devices statuses
	log     *zap.Logger

	// full takes the task of a call that met the end of a device's memory.
	full chan string

	tasks      map[string]*taskSearch
	task       string
	open, kept int // as the pool was told last
}

// taskSearch is the search of one task; told is the number that was logged last.
type taskSearch struct {
	*search
	told int
	last time.Time
}

// New begins with one slot per device; Run is to follow.
func New(p *pool.Pool, place config.Placement, devices statuses, log *zap.Logger) *Sizing {
	s := &Sizing{
		pool: p, meter: newMeter(measureFor), groups: place.Groups, most: place.Most, devices: devices, log: log,
		memory: place.Memory / gpumux.Size(place.GPUsPerSlot), full: make(chan string, 1), tasks: map[string]*taskSearch{},
	}
	s.resize(1, 1)
	return s
}

func (s *Sizing) resize(open, kept int) {
	same := s.open == open
	s.open, s.kept = open, kept
	s.pool.Resize(open, kept)
	if !same {
		s.meter.reset(s.pool.Slots(""))
	}
}

// Begin is called before a call runs in its slot; whole says that it has the slot's devices to itself. A nil Sizing measures nothing.
func (s *Sizing) Begin(h *pool.Handle, task string, whole bool) *Stint {
	if s == nil {
		return nil
	}
	return s.meter.begin(s.pool, h, task, whole)
}

// Failed is called with the fault that ended a call. Where slots have a budget, memory that did not do is the item's affair.
func (s *Sizing) Failed(task string, kind gpumux.Kind) {
	if s == nil || s.memory > 0 || kind != gpumux.DeviceOOM && kind != gpumux.HostOOM {
		return
	}
	select {
	case s.full <- task:
	default: // one is enough
	}
}

// Run takes measurements until ctx ends.
func (s *Sizing) Run(ctx context.Context) {
	tick := time.NewTicker(s.meter.length)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case found := <-s.meter.measured:
			if s.meter.current(found) {
				s.take(found)
			}
		case task := <-s.full:
			s.overflow(task)
		case <-tick.C:
			// A device may have been cordoned, or have come back.
			s.meter.follow(s.pool.Slots(""))
		}
	}
}

// take takes in a measurement.
func (s *Sizing) take(found measurement) {
	find := s.find(found.task)
	if found.paused > stale || found.task != s.task && time.Since(find.last) > stale {
		find.pause()
	}
	s.task, find.last = found.task, time.Now()
	switch {
	case find.slots() != s.open: // the task before had another number
	case found.hungry:
		find.starve()
	default:
		find.take(found.rate * float64(s.open) / float64(found.want))
	}
	s.apply(find)
}

// overflow is told that a device's memory did not do for the slots.
func (s *Sizing) overflow(task string) {
	find := s.find(task)
	if task != s.task || find.slots() != s.open || !find.overflow() {
		return
	}
	s.log.Warn(fmt.Sprintf("pool %s: the memory of a device does not do for %d slots of task %s; it goes on with %d", s.pool.Name, s.open,
		task, find.slots()), zap.String(logkey.Pool, s.pool.Name), zap.String(logkey.Task, task))
	s.apply(find)
}

// find is the search of a task; a new one begins with as many slots as there are.
func (s *Sizing) find(task string) *taskSearch {
	find := s.tasks[task]
	if find == nil {
		find = &taskSearch{search: newSearch(s.open, s.most), last: time.Now()}
		find.room = func(from, to int) int { return s.room(task, from, to) }
		s.tasks[task] = find
	}
	return find
}

// apply gives the pool the slots that a search asks for. Processes stay while it is not sure which number is the better one.
func (s *Sizing) apply(find *taskSearch) {
	if find.settled() && find.told != find.best() {
		find.told = find.best()
		s.log.Info(s.news(find), zap.String(logkey.Pool, s.pool.Name), zap.String(logkey.Task, s.task), zap.Int(logkey.Slots, find.best()))
	}
	if open, kept := find.slots(), find.most(); open != s.open || kept != s.kept {
		s.resize(open, kept)
	}
}

// news is what a search has found, in one line.
func (s *Sizing) news(find *taskSearch) string {
	rate := func(n int) string {
		all := find.known[n] * float64(len(s.groups))
		if all >= 100 {
			return fmt.Sprintf("%.0f", all)
		}
		return fmt.Sprintf("%.3g", all)
	}
	slots := "slots"
	if find.best() == 1 {
		slots = "slot"
	}
	text := fmt.Sprintf("pool %s: %d %s per device for task %s: %s items/s", s.pool.Name, find.best(), slots, s.task, rate(find.best()))
	smaller, larger := find.neighbours()
	switch {
	case smaller > 0 && larger > 0:
		text += fmt.Sprintf(" against %s with %d, %s with %d", rate(smaller), smaller, rate(larger), larger)
	case smaller+larger > 0:
		text += fmt.Sprintf(" against %s with %d", rate(smaller+larger), smaller+larger)
	}
	return text
}

// room is how many slots there is memory for now, from a number that is in use up to a wanted one.
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
			need := per
			if s.memory == 0 && d.Kind != gpu.KindCPU {
				need = max(need+memory.ContextRoom, float64(status.Memory.Total-status.Memory.Free)/float64(from))
			}
			if need > 0 {
				to = min(to, from+int(math.Floor(roomShare*float64(status.Memory.Free)/need)))
			}
		}
	}
	return to
}
