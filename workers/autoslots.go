package workers

import (
	"context"
	"fmt"
	"sync"
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
	// worthwhile is by how much more slots must raise the throughput. Twice the processes
	// brought 1.7 times the items and more where the device had room, else none.
	worthwhile = 1.2
	// A measurement lasts for window and minItems, or for longWindow if items are long.
	window, longWindow = time.Second, time.Minute
	minItems           = 16
	sizingEvery        = window / 10
	// burst is within which results may be of one micro-batch.
	burst = 20 * time.Millisecond
	// roomShare is the share of a device's free memory that more slots may plan with.
	roomShare = 0.9
)

// sizing finds how many slots per device a pool with slots: auto has. It begins with one.
// Once it has measured the throughput it doubles the slots, for as long as that pays;
// then it keeps the last number that paid. Each edition of a task is searched once. It
// never ends a process itself, and gives a pool no more slots than devices have memory
// for.
type sizing struct {
	pool    *pool.Pool
	groups  []config.Group
	max     int
	memory  gpumux.Size // budget of a slot on each of its devices
	reserve gpumux.Size // of each device
	status  func(uuid string) (gpu.Status, error)
	log     *zap.Logger

	mu       sync.Mutex // guards what follows, every search and every stint
	searches map[sizedEdition]*slotSearch
	current  *slotSearch // its number is the pool's
	used     time.Time
	stints   map[*pool.Seat]*stint

	// The measurement: since when all slots give results, or zero; how often it was looked
	// at, and how often a slot had no work then.
	began      time.Time
	slots      int
	looks, few int
}

type sizedEdition struct{ task, edition string }

type slotSearch struct {
	task string
	// slots is the number per device, on trial until it is found. paid is the last one that
	// paid, with its items per second and device.
	slots, paid int
	rate        float64
	found       bool
	reduced     time.Time // when slots last became fewer
	peak        int64     // the most bytes of an item
}

// stint is the calls in a slot, one after the other or side by side.
type stint struct {
	sizing      *sizing
	search      *slotSearch // nil for a call with a whole device
	calls       int
	began       time.Time
	first, last time.Time // results of the measurement
	items       int       // after the first ones
}

func newSizing(p *pool.Pool, placed config.Placement, status func(uuid string) (gpu.Status, error), log *zap.Logger) *sizing {
	p.Resize(1)
	return &sizing{
		pool: p, groups: placed.Groups, max: placed.MaxSlots, status: status, log: log, memory: placed.Memory / gpumux.Size(placed.GPUsPerSlot),
		reserve: placed.Reserve, searches: map[sizedEdition]*slotSearch{}, stints: map[*pool.Seat]*stint{},
	}
}

func (s *sizing) Run(ctx context.Context) {
	for tick := time.Tick(sizingEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if tried, rate, peak := s.look(); tried != nil {
				s.decide(tried, rate, s.room(peak, tried.slots, min(2*tried.slots, s.max)))
			}
		}
	}
}

// Begin is called before a call runs in its slot; whole: it has the devices to itself. A
// nil sizing measures nothing.
func (s *sizing) Begin(h *pool.Seat, task, code string, whole bool) *stint {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stints[h]
	if st == nil {
		st = &stint{sizing: s}
		s.stints[h] = st
	}
	if st.calls++; st.calls > 1 {
		return st // of the same task, whose items run at the same time
	}
	st.began, st.search = time.Now(), nil
	if !whole {
		st.search = s.searchFor(sizedEdition{task, code})
	}
	return st
}

// searchFor is the search of an edition. It becomes the current one if that has had no
// call for a while.
func (s *sizing) searchFor(e sizedEdition) *slotSearch {
	found := s.searches[e]
	if found == nil {
		found = &slotSearch{task: e.task, slots: 1}
		s.searches[e] = found
	}
	if found != s.current && (s.current == nil || !s.runs(s.current) && time.Since(s.used) > window) {
		s.current = found
		s.apply()
	}
	return found
}

func (s *sizing) runs(search *slotSearch) bool {
	for _, st := range s.stints {
		if st.calls > 0 && st.search == search {
			return true
		}
	}
	return false
}

// Done is called with every result, and the peak bytes of its item where that is known.
func (st *stint) Done(peak int64) {
	if st == nil || st.search == nil {
		return
	}
	st.sizing.mu.Lock()
	defer st.sizing.mu.Unlock()
	st.search.peak = max(st.search.peak, peak)
	if st.search != st.sizing.current || st.search.found {
		return
	}
	now := time.Now()
	if st.last = now; st.first.IsZero() {
		st.first = now
	} else if now.Sub(st.first) > burst {
		st.items++
	}
}

// Failed gets the fault that ended a call. Without a budget a lack of memory may be that
// of so many slots.
func (st *stint) Failed(kind gpumux.FaultKind) {
	if st == nil || st.search == nil || st.sizing.memory > 0 || kind != gpumux.FaultDeviceOOM && kind != gpumux.FaultHostOOM {
		return
	}
	s, failed := st.sizing, st.search
	s.mu.Lock()
	defer s.mu.Unlock()
	fewer := failed.slots / 2
	if !failed.found {
		fewer = failed.paid
	}
	if failed != s.current || fewer == 0 || st.began.Before(failed.reduced) {
		return
	}
	s.log.Warn(fmt.Sprintf("pool %s: the memory of a device does not do for %d slots of task %s; it goes on with %d", s.pool.Name, failed.slots,
		failed.task, fewer), zap.String("pool", s.pool.Name), zap.String("task", failed.task))
	failed.slots, failed.found, failed.reduced = fewer, true, time.Now()
	s.apply()
}

func (st *stint) End() {
	if st == nil {
		return
	}
	st.sizing.mu.Lock()
	defer st.sizing.mu.Unlock()
	if st.calls--; st.search == st.sizing.current {
		st.sizing.used = time.Now()
	}
}

// apply gives the pool the slots of the current search; the caller holds the lock.
func (s *sizing) apply() {
	s.pool.Resize(s.current.slots)
	s.measure(time.Time{})
}

// measure begins a measurement, or with zero waits for one; the caller holds the lock.
func (s *sizing) measure(began time.Time) {
	s.began, s.looks, s.few = began, 0, 0
	for _, st := range s.stints {
		st.first, st.last, st.items = time.Time{}, time.Time{}, 0
	}
}

// look returns the search in progress with its rate and peak, once that is measured. A
// slot's rate is from its first result to its last one, so neither the length of items
// nor the start of processes distorts it. It counts while all slots work on one task.
func (s *sizing) look() (*slotSearch, float64, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.found {
		return nil, 0, 0
	}
	working, warm, done, items, took := 0, 0, 0, 0, time.Duration(0)
	for _, st := range s.stints {
		if st.calls > 0 && st.search != s.current {
			s.measure(time.Time{})
			return nil, 0, 0
		}
		if st.calls > 0 {
			working++
		}
		if !st.last.IsZero() {
			warm++
		}
		if st.items > 1 {
			done, items, took = done+1, items+st.items, took+st.last.Sub(st.first)
		}
	}
	// A device may have been cordoned, or have come back.
	slots := s.pool.Load().Slots
	if slots != s.slots || working > slots { // calls of a larger number may still run
		s.slots = slots
		s.measure(time.Time{})
	}
	if s.looks++; working < slots {
		s.few++
	}
	age := time.Since(s.began)
	switch {
	case working < slots || slots == 0:
	case s.began.IsZero() && warm >= slots:
		s.measure(time.Now())
	case s.began.IsZero() || done < slots || age < window || items < minItems && age < longWindow:
	case s.few > s.looks/8: // for want of work
		s.measure(time.Time{})
	default:
		return s.current, float64(s.current.slots*items) / took.Seconds(), s.current.peak
	}
	return nil, 0, 0
}

// decide goes on with a larger number, or keeps the last one that paid.
func (s *sizing) decide(tried *slotSearch, rate float64, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tried != s.current || tried.found {
		return
	}
	if rate >= worthwhile*tried.rate {
		tried.paid, tried.rate = tried.slots, rate
	} else {
		next = tried.paid
	}
	if tried.found = next <= tried.paid; tried.found {
		next = tried.paid
	}
	if next < tried.slots {
		tried.reduced = time.Now()
	}
	tried.slots = next
	s.apply()
	if tried.found {
		s.log.Info(fmt.Sprintf("pool %s: %s per device for task %s: %s items/s", s.pool.Name, english.Plural(next, "slot", ""), tried.task,
			humanize.CommafWithDigits(tried.rate*float64(len(s.groups)), 2)), zap.String("pool", s.pool.Name), zap.String("task", tried.task), zap.Int("slots", next))
	}
}

func (s *sizing) room(peak int64, from, to int) int {
	per := float64(s.memory)
	if per == 0 {
		per = float64(peak)
	}
	for _, g := range s.groups {
		for _, d := range g.Devices {
			status, err := s.status(d.UUID)
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
				to = min(to, from+int(roomShare*free/need))
			}
		}
	}
	return to
}
