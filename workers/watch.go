package workers

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
	"github.com/gpumux/gpumux/workers/slot"
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

// memories is what the watch asks about devices; *gpu.Inventory is one.
type memories interface {
	ProcessMemory(uuid string) (map[int]uint64, error)
}

// watch is the slot.Watch of a worker: one goroutine reads the memory of all its task processes, on the CPU their resident
// memory, on a GPU what the driver says that they hold there.
type watch struct {
	devices memories
	// hostPIDs says that the driver's process numbers are ours.
	hostPIDs bool
	log      *zap.Logger
	wake     chan struct{}

	mu       sync.Mutex // guards what follows and every field of a follower that is not fixed
	census   *gpu.Census
	follower map[*follower]bool
	asleep   bool
	cost     time.Duration // about the least that a round takes
	blind    map[string]bool
}

// follower is one process that is followed.
type follower struct {
	w      *watch
	pid    int
	cpu    bool
	uuids  []string
	budget int64
	over   func(held int64)

	busy, closed, fired bool
	held, peak          int64 // bytes
	others              []int // its descendants as of the last round
	// own is the share of its resident memory that is its own, as of the last look at shared pages.
	own  float64
	last look
}

// look is a look at shared pages: when it ended, how long it took, and what was held by a count that has them once for each process.
type look struct {
	at   time.Time
	took time.Duration
	held int64
}

// due says whether it is time for another look at a process that holds so much by now.
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
		census: gpu.NewCensus(), follower: map[*follower]bool{}, blind: map[string]bool{},
	}
}

// Follow implements slot.Watch.
func (w *watch) Follow(device string, pid int, budget gpumux.Size, over func(held int64)) slot.Watched {
	f := &follower{w: w, pid: pid, cpu: device == gpu.CPU, uuids: strings.Split(device, ","), budget: int64(budget), over: over, own: 1}
	w.mu.Lock()
	w.census.Follow(pid)
	w.follower[f] = true
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

// round reads once and says when to read again; 0 means that nothing is followed.
func (w *watch) round() time.Duration {
	began := time.Now()
	// The driver is asked without the lock: when it hangs, only the watch does.
	held := w.drivers(w.used())
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
		f.look(held)
		if f.budget > 0 {
			pressure = max(pressure, float64(f.held)/float64(f.budget))
		}
	}
	if took := time.Since(began); w.cost == 0 || took < w.cost {
		w.cost = took
	} else {
		// Most of a round that took much longer was waiting for a processor.
		w.cost = min(took, w.cost*17/16)
	}
	w.asleep = !busy
	switch {
	case !busy:
		return watchIdle
	case pressure >= tightShare:
		return min(watchIdle, max(watchNear, nearCost*w.cost))
	case pressure >= nearShare:
		return min(watchIdle, max(watchNear, watchCost*w.cost))
	}
	return min(watchIdle, max(watchFar, watchCost*w.cost))
}

// look takes a reading of one process; held keeps what the driver said in this round. The caller holds the lock.
func (f *follower) look(held map[string]map[int]uint64) {
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
		sum += int64(held[uuid][f.pid])
		for _, pid := range f.others {
			sum += int64(held[uuid][pid])
		}
	}
	f.take(sum)
}

// take takes in a reading and ends a process over its budget.
func (f *follower) take(held int64) {
	f.held = int64(float64(held) * f.own)
	f.peak = max(f.peak, f.held)
	if f.budget == 0 || held <= f.budget || f.fired {
		return
	}
	if f.cpu {
		began := time.Now()
		if !f.last.due(began, held, f.budget) {
			return
		}
		// Shared pages count once for each process until here, where it matters.
		own := int64(gpu.Proportional(append([]int{f.pid}, f.others...)...))
		now := time.Now()
		f.last = look{at: now, took: now.Sub(began), held: held}
		f.own, held = min(1, float64(own)/float64(held)), own
		if held <= f.budget {
			return
		}
	}
	f.fired, f.peak = true, max(f.peak, held)
	f.over(held)
}

// used is the GPUs of all followers.
func (w *watch) used() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var uuids []string
	for f := range w.follower {
		for _, uuid := range f.uuids {
			if !f.cpu && !slices.Contains(uuids, uuid) {
				uuids = append(uuids, uuid)
			}
		}
	}
	return uuids
}

// drivers asks what each process holds on the devices; a device whose driver does not tell is left out.
func (w *watch) drivers(uuids []string) map[string]map[int]uint64 {
	held := map[string]map[int]uint64{}
	for _, uuid := range uuids {
		if !w.hostPIDs {
			break
		}
		processes, err := w.devices.ProcessMemory(uuid)
		w.mu.Lock()
		switch {
		case err == nil:
			held[uuid] = processes
			delete(w.blind, uuid)
		case !errors.Is(err, gpu.ErrLost): // the guard speaks of lost devices
			w.complain(uuid, "the driver does not tell what processes hold", err)
		}
		w.mu.Unlock()
	}
	return held
}

// complain says a thing once, until it has been well again. The caller holds the lock.
func (w *watch) complain(about, what string, err error) {
	if !w.blind[about] {
		w.blind[about] = true
		w.log.Warn(what+"; their budget is left to the other means", zap.String(logDevice, about), zap.Error(err))
	}
}

// Busy implements slot.Watched.
func (f *follower) Busy(busy bool) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.busy = busy
	if busy {
		f.w.rouse()
	}
}

// Held implements slot.Watched. On the CPU it is read now, over the processes that are known; on a GPU it is the last reading.
func (f *follower) Held() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.cpu && !f.closed {
		f.held = int64(f.own * float64(gpu.Resident(append([]int{f.pid}, f.others...)...)))
	}
	return f.held
}

// Measure implements slot.Watched.
func (f *follower) Measure() int64 {
	if f.cpu {
		return f.Held()
	}
	held := f.w.drivers(f.uuids)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.look(held)
	return f.held
}

// Peak implements slot.Watched.
func (f *follower) Peak() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	peak := f.peak
	f.peak = 0
	return peak
}

// Close implements slot.Watched.
func (f *follower) Close() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.w.census.Forget(f.pid)
		delete(f.w.follower, f)
	}
}
