package memory

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/session"
)

const (
	// watchNear is the time between two readings while a busy process holds more than nearShare of its budget, watchFar while
	// all hold less, watchIdle while no items run and at the most.
	watchNear = 100 * time.Millisecond
	watchFar  = 200 * time.Millisecond
	watchIdle = time.Second
	nearShare = 0.5
	// watchCost bounds what readings cost: the time between two is at least so many times what one takes, or nearCost times
	// while a process holds more than tightShare of its budget.
	watchCost, nearCost = 100, 20
	tightShare          = 0.75
	// sharedCost is how many times longer than its own reading the next look at shared pages waits, which takes long, or grownCost
	// when the process holds more by grownShare of its budget than it did then.
	sharedCost, grownCost = 50, 10
	grownShare            = 0.125
)

// memories is what the watch asks about devices; *gpu.Inventory is one. It answers within seconds, and may be asked by many at once.
type memories interface {
	ProcessMemory(uuid string) (map[int]uint64, error)
}

// watch is the session.Watch of a worker: one goroutine reads the memory of all its task processes, on the CPU their resident
// memory, on a GPU what the driver says that they hold there.
type watch struct {
	devices memories
	// hostPIDs says that the driver's process numbers are ours.
	hostPIDs bool
	log      *zap.Logger
	wake     chan struct{}
	// proportional is gpu.Proportional. It waits where a process takes memory in one long call of the kernel.
	proportional func(pids ...int) uint64
	// host is hostMemory; nil leaves the host unguarded.
	host    func() (gpu.Memory, error)
	readers sync.WaitGroup

	mu       sync.Mutex // guards what follows and every field of a follower that is not fixed
	census   *gpu.Census
	follower map[*follower]bool
	asleep   bool
	cost     time.Duration // about the least that a round takes, with its readings
	readings map[string]*reading
	blind    map[string]bool
}

// reading is what the driver said last of a device: what each process holds on it. Awaited says that a round has asked for the next.
type reading struct {
	began   time.Time
	took    time.Duration
	held    map[int]uint64
	awaited bool
}

// follower is one process that is followed.
type follower struct {
	w      *watch
	pid    int
	cpu    bool
	uuids  []string
	budget int64
	over   func(session.Over)

	busy, closed, fired bool
	held, peak          int64 // bytes
	counted             int64 // what it held with shared pages once for each process
	others              []int // its descendants as of the last round
	// own is the share of its resident memory that is its own, as of the last look at shared pages.
	own  float64
	last look
	// looking says that shared pages are looked at now.
	looking bool
}

// look is a look at shared pages: when it ended, how long it took, and what was held by a count that has them once for each process.
type look struct {
	at   time.Time
	took time.Duration
	held int64
}

// due reports whether it is time for another look at a process that holds so much by now.
func (l look) due(now time.Time, held, budget int64) bool {
	wait := sharedCost * l.took
	if float64(held-l.held) >= grownShare*float64(budget) {
		wait = grownCost * l.took
	}
	return now.Sub(l.at) >= wait
}

func newWatch(devices memories, hostPIDs bool, log *zap.Logger) *watch {
	return &watch{
		devices: devices, hostPIDs: hostPIDs, log: log, wake: make(chan struct{}, 1), asleep: true,
		census: gpu.NewCensus(), follower: map[*follower]bool{}, readings: map[string]*reading{}, blind: map[string]bool{},
		proportional: gpu.Proportional,
	}
}

// Follow implements session.Watch.
func (w *watch) Follow(device string, pid int, budget gpumux.Size, over func(session.Over)) session.Watched {
	f := &follower{w: w, pid: pid, cpu: device == gpu.CPU, uuids: strings.Split(device, ","), budget: int64(budget), over: over, own: 1}
	w.mu.Lock()
	w.census.Follow(pid)
	w.follower[f] = true
	for _, uuid := range f.uuids {
		if !f.cpu && w.readings[uuid] == nil {
			w.readings[uuid] = &reading{}
		}
	}
	w.rouse()
	w.mu.Unlock()
	return f
}

// rouse starts the readings again, or makes them frequent; the caller holds the lock.
func (w *watch) rouse() {
	if w.asleep {
		w.asleep = false
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// run reads until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer w.readers.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.wake:
		}
		if next := w.round(); next > 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
	}
}

// round reads once and says when to read again; 0 means that nothing is followed. It waits neither for a driver nor for a process.
func (w *watch) round() time.Duration {
	began := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.follower) == 0 {
		w.asleep = true
		return 0
	}
	if err := w.census.Round(); err != nil {
		w.complain("processes", "the memory of task processes cannot be read", err)
	}
	busy, pressure := false, 0.0
	for f := range w.follower {
		busy = busy || f.busy
		if f.cpu {
			f.look()
		}
		if f.budget > 0 {
			pressure = max(pressure, float64(f.held)/float64(f.budget))
		}
	}
	if took := time.Since(began) + w.ask(); w.cost == 0 || took < w.cost {
		w.cost = took
	} else {
		// Most of a round that took much longer was waiting for a processor.
		w.cost = min(took, w.cost*17/16)
	}
	w.asleep = !busy
	switch {
	case !busy:
		return watchIdle
	case w.relieve():
		return watchNear
	case pressure >= tightShare:
		return min(watchIdle, max(watchNear, nearCost*w.cost))
	case pressure >= nearShare:
		return min(watchIdle, max(watchNear, watchCost*w.cost))
	}
	return min(watchIdle, max(watchFar, watchCost*w.cost))
}

// ask has the devices of all followers read, each by one goroutine at a time, and says how long that took the last time. The caller
// holds the lock.
func (w *watch) ask() (took time.Duration) {
	if !w.hostPIDs {
		return 0
	}
	for uuid, r := range w.readings {
		if !w.used(uuid) {
			r.held = nil // numbers of processes are given again
			continue
		}
		took += r.took
		if r.awaited {
			continue
		}
		r.awaited = true
		w.readers.Go(func() {
			w.read(uuid)
			w.mu.Lock()
			r.awaited = false
			w.mu.Unlock()
		})
	}
	return took
}

func (w *watch) used(uuid string) bool {
	for f := range w.follower {
		if slices.Contains(f.uuids, uuid) {
			return true
		}
	}
	return false
}

// read asks the driver what each process holds on a device, and looks at those that are followed there. Of a device of which the
// driver says nothing the last reading stands.
func (w *watch) read(uuid string) {
	began := time.Now()
	held, err := w.devices.ProcessMemory(uuid)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.readings[uuid]
	switch {
	case err == nil:
		delete(w.blind, uuid)
		if began.Before(r.began) {
			return
		}
		r.began, r.took, r.held = began, took, held
	case errors.Is(err, gpu.ErrSilent):
		w.complain(uuid, "the driver does not answer what processes hold", err)
		return
	default:
		r.held = nil
		if !errors.Is(err, gpu.ErrLost) { // the guard speaks of lost devices
			w.complain(uuid, "the driver does not tell what processes hold", err)
		}
	}
	for f := range w.follower {
		if slices.Contains(f.uuids, uuid) {
			f.look()
		}
	}
}

// look takes in the readings that there are of one process. The caller holds the lock.
func (f *follower) look() {
	tree := f.w.census.Tree(f.pid)
	if tree == nil || f.closed {
		return
	}
	f.others = f.others[:0]
	for pid := range tree.Resident {
		if pid != f.pid {
			f.others = append(f.others, pid)
		}
	}
	if f.cpu {
		f.take(int64(tree.Sum()))
		return
	}
	var sum int64
	for _, uuid := range f.uuids {
		held := f.w.readings[uuid].held
		sum += int64(held[f.pid])
		for _, pid := range f.others {
			sum += int64(held[pid])
		}
	}
	f.take(sum)
}

// take takes in a reading and ends a process over its budget. The caller holds the lock.
func (f *follower) take(held int64) {
	f.counted, f.held = held, int64(float64(held)*f.own)
	f.peak = max(f.peak, f.held)
	if f.budget == 0 || held <= f.budget || f.fired {
		return
	}
	if !f.cpu {
		f.end(held)
		return
	}
	// Shared pages count once for each process until here, where it matters.
	if began := time.Now(); !f.looking && f.last.due(began, held, f.budget) {
		f.looking = true
		go f.weigh(began, append([]int{f.pid}, f.others...))
	}
}

// weigh looks at shared pages and ends a process that is over its budget without them, if it still was with them in the last round.
func (f *follower) weigh(began time.Time, pids []int) {
	own := int64(f.w.proportional(pids...))
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	now := time.Now()
	f.looking, f.last = false, look{at: now, took: now.Sub(began), held: f.counted}
	f.own = min(1, float64(own)/float64(max(f.counted, 1)))
	if !f.closed && !f.fired && own > f.budget && f.counted > f.budget {
		f.end(own)
	}
}

// end ends the process; the caller holds the lock.
func (f *follower) end(held int64) {
	f.fired, f.peak = true, max(f.peak, held)
	f.over(session.Over{Held: held})
}

// complain says a thing once, until it has been well again. The caller holds the lock.
func (w *watch) complain(about, what string, err error) {
	if !w.blind[about] {
		w.blind[about] = true
		w.log.Warn(what+"; their budget is left to the other means", zap.String(logkey.Device, about), zap.Error(err))
	}
}

// Busy implements session.Watched.
func (f *follower) Busy(busy bool) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.busy = busy
	if busy {
		f.w.rouse()
	}
}

// Held implements session.Watched. On the CPU it is read now, over the processes that are known; on a GPU it is the last reading.
func (f *follower) Held() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.cpu && !f.closed {
		f.held = int64(f.own * float64(gpu.Resident(append([]int{f.pid}, f.others...)...)))
	}
	return f.held
}

// Measure implements session.Watched. Where the driver does not answer it is the last reading.
func (f *follower) Measure() int64 {
	if !f.cpu && f.w.hostPIDs {
		var all sync.WaitGroup
		for _, uuid := range f.uuids {
			all.Go(func() { f.w.read(uuid) })
		}
		all.Wait()
	}
	return f.Held()
}

// Peak implements session.Watched.
func (f *follower) Peak() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	peak := f.peak
	f.peak = 0
	return peak
}

// Close implements session.Watched.
func (f *follower) Close() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.w.census.Forget(f.pid)
		delete(f.w.follower, f)
	}
}
