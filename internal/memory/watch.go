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
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/session"
)

const (
	// watchNear is the pause between two rounds while a busy process holds more than
	// nearShare of its budget. watchFar is the pause while all hold less, watchIdle the
	// longest pause.
	watchNear = 100 * time.Millisecond
	watchFar  = 200 * time.Millisecond
	watchIdle = time.Second
	nearShare = 0.5
	// A pause lasts at least watchCost rounds, or nearCost rounds near a budget. This bounds
	// the share of time that measuring takes.
	watchCost, nearCost = 100, 20
	// sharedCost does the same for samples of shared pages.
	sharedCost = 20
)

// memories reads devices for the watch. It serves many callers and answers within
// seconds.
type memories interface {
	ProcessMemory(uuid string) (map[int]uint64, error)
}

// watch is the session.Watch of a worker: one goroutine measures all task processes, on
// the CPU by resident memory, on a GPU by the driver's numbers.
type watch struct {
	devices memories
	notices *notice.List
	log     *zap.Logger
	wake    chan struct{}
	// proportional is gpu.ProportionalMemory. It may wait for a process's long system call.
	proportional func(pids ...int) uint64
	// host reads the host's memory; nil leaves it unguarded. reserve 0 is the default one.
	host    func() (gpu.Memory, error)
	reserve uint64
	// gpus are all GPUs of the host by UUID. A process that uses another GPU than its slot's
	// is ended.
	gpus map[string]gpu.Device
	// patience is returnLimit. Tests have less.
	patience time.Duration
	readers  sync.WaitGroup

	mu        sync.Mutex // guards what follows, and the fields of watched from busy on
	census    *gpu.Census
	processes map[*watched]bool
	asleep    bool
	cost      time.Duration // shortest recent duration of a round, readings included
	readings  map[string]*reading
	warned    map[string]bool
	// probed is, by device, whether the driver reported the memory of a process on it. Until
	// a probe says otherwise it is believed to.
	probed map[string]bool
}

// reading is the driver's last answer for a device. pending: the next one is on its way.
type reading struct {
	asked   time.Time // when a round asked last
	began   time.Time
	took    time.Duration
	held    map[int]uint64
	pending bool
}

type watched struct {
	w      *watch
	pid    int
	cpu    bool
	uuids  []string
	budget int64
	over   func(session.Over)

	busy, closed bool
	ended        bool  // for its memory
	held, peak   int64 // bytes
	counted      int64 // held, but shared pages count once per process
	others       []int // its descendants as of the last round
	// share is held as a fraction of counted, from the last sample.
	share       float64
	sampling    bool
	sampleAfter time.Time // earliest time of the next sample
}

func newWatch(devices memories, log *zap.Logger) *watch {
	return &watch{
		devices: devices, log: log, wake: make(chan struct{}, 1), asleep: true,
		census: gpu.NewCensus(), processes: map[*watched]bool{}, readings: map[string]*reading{}, warned: map[string]bool{}, probed: map[string]bool{},
		proportional: gpu.ProportionalMemory, patience: returnLimit,
	}
}

func (w *watch) Follow(device string, pid int, budget gpumux.Size, over func(session.Over)) session.Watched {
	f := &watched{w: w, pid: pid, cpu: device == gpu.CPU, uuids: strings.Split(device, ","), budget: int64(budget), over: over, share: 1}
	w.mu.Lock()
	w.census.Follow(pid)
	w.processes[f] = true
	for _, uuid := range f.uuids {
		if !f.cpu && w.readings[uuid] == nil {
			w.readings[uuid] = &reading{}
		}
	}
	w.wakeUp()
	w.mu.Unlock()
	return f
}

// wakeUp starts the rounds again or shortens their pause. The caller holds the lock.
func (w *watch) wakeUp() {
	if w.asleep {
		w.asleep = false
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

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

// round measures once and returns the pause before the next round, 0 without processes.
// It waits neither for a driver nor for a process.
func (w *watch) round() time.Duration {
	began := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.processes) == 0 {
		w.asleep = true
		return 0
	}
	if err := w.census.Round(); err != nil {
		w.warnOnce("processes", "the memory of task processes cannot be read", err)
	}
	busy, pressure := false, 0.0
	for f := range w.processes {
		busy = busy || f.busy
		if f.cpu {
			f.sumUp()
		}
		if f.budget > 0 {
			pressure = max(pressure, float64(f.held)/float64(f.budget))
		}
	}
	if took := time.Since(began) + w.readDevices(); w.cost == 0 || took < w.cost {
		w.cost = took
	} else {
		// A round that took much longer mostly waited for a processor.
		w.cost = min(took, w.cost*17/16)
	}
	w.asleep = !busy
	switch {
	case !busy:
		return watchIdle
	case w.protectHost():
		return watchNear
	case pressure >= nearShare:
		return min(watchIdle, max(watchNear, nearCost*w.cost))
	}
	return min(watchIdle, max(watchFar, watchCost*w.cost))
}

// readDevices starts a reading of each device in use, in the background. It returns how
// long the last readings took. The caller holds the lock.
func (w *watch) readDevices() (took time.Duration) {
	for uuid, r := range w.readings {
		if !w.sees(uuid) {
			r.held = nil
			continue
		}
		if w.used(uuid) {
			took += r.took
		} else if r.held = nil; time.Since(r.asked) < max(foreignEvery, watchCost*r.took) { // the system reuses process numbers
			continue
		}
		if r.pending {
			continue
		}
		r.pending, r.asked = true, time.Now()
		w.readers.Go(func() {
			w.read(uuid)
			w.mu.Lock()
			r.pending = false
			w.mu.Unlock()
		})
	}
	return took
}

// sees reports whether the driver tells what processes hold on a device. The caller holds
// the lock.
func (w *watch) sees(uuid string) bool {
	seen, tried := w.probed[uuid]
	return seen || !tried
}

// tells is sees for callers without the lock.
func (w *watch) tells(uuid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sees(uuid)
}

func (w *watch) used(uuid string) bool {
	for f := range w.processes {
		if slices.Contains(f.uuids, uuid) {
			return true
		}
	}
	return false
}

// read asks the driver about a device; without an answer the last reading stands.
func (w *watch) read(uuid string) {
	began := time.Now()
	held, err := w.devices.ProcessMemory(uuid)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.readings[uuid]
	switch {
	case err == nil:
		delete(w.warned, uuid)
		if began.Before(r.began) {
			return
		}
		r.began, r.took, r.held = began, took, held
	case !w.used(uuid):
		return // nobody's budget depends on it
	case errors.Is(err, gpu.ErrSilent):
		w.warnOnce(uuid, "the driver does not answer what processes hold", err)
		return
	default:
		r.held = nil
		if !errors.Is(err, gpu.ErrLost) { // the guard reports lost devices
			w.warnOnce(uuid, "the driver does not tell what processes hold", err)
		}
	}
	for f := range w.processes {
		if slices.Contains(f.uuids, uuid) {
			f.sumUp()
		}
	}
	w.endForeign(uuid, held)
}

// sumUp adds up the last readings of one process tree. The caller holds the lock.
func (f *watched) sumUp() {
	tree := f.findOthers()
	if tree == nil || f.closed {
		return
	}
	if f.cpu {
		f.observe(int64(tree.Sum()))
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
	f.observe(sum)
}

// observe records a measurement, and ends a process over its budget, under the lock.
func (f *watched) observe(held int64) {
	f.counted, f.held = held, int64(float64(held)*f.share)
	f.peak = max(f.peak, f.held)
	if f.budget == 0 || held <= f.budget || f.ended {
		return
	}
	if !f.cpu {
		f.end(held)
		return
	}
	// So far shared pages count once per process; a sample divides them.
	if began := time.Now(); !f.sampling && began.After(f.sampleAfter) {
		f.sampling = true
		go f.sample(began, append([]int{f.pid}, f.others...))
	}
}

// sample divides shared pages among their processes, and ends a process that is over its
// budget even so.
func (f *watched) sample(began time.Time, pids []int) {
	resident := int64(f.w.proportional(pids...))
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	now := time.Now()
	f.sampling, f.sampleAfter = false, now.Add(sharedCost*now.Sub(began))
	f.share = min(1, float64(resident)/float64(max(f.counted, 1)))
	if !f.closed && !f.ended && resident > f.budget && f.counted > f.budget {
		f.end(resident)
	}
}

// end ends the process; the caller holds the lock.
func (f *watched) end(held int64) {
	f.ended, f.peak = true, max(f.peak, held)
	f.over(session.Over{Held: held})
}

// warnOnce logs a failure once until it passes. The caller holds the lock.
func (w *watch) warnOnce(about, what string, err error) {
	if !w.warned[about] {
		w.warned[about] = true
		w.notices.Warn(w.log, what+"; their budget is left to the other means", zap.String("device", about), zap.Error(err))
	}
}

func (f *watched) Busy(busy bool) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.busy = busy
	if busy {
		f.w.wakeUp()
	}
}

// Held implements session.Watched: measured now on the CPU, the last reading on a GPU.
func (f *watched) Held() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.cpu && !f.closed {
		f.held = int64(f.share * float64(gpu.ResidentMemory(append([]int{f.pid}, f.others...)...)))
	}
	return f.held
}

func (f *watched) Peak() int64 {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	peak := f.peak
	f.peak = 0
	return peak
}

func (f *watched) Close() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.findOthers()
		f.w.census.Forget(f.pid)
		delete(f.w.processes, f)
	}
}
