package workers

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// plant is a pool with slots: auto, and callers that always have work.
type plant struct {
	*sizing
	t    *testing.T
	seen *observer.ObservedLogs
	// callers is how many calls wait for slots.
	callers int

	// The slots of a model, and how long an item of the task patient takes there.
	slots []*gputest.Slot
	seats []*pool.Seat
	nap   time.Duration

	mu      sync.Mutex
	results map[int64]int // how often each index came
	next    int64
}

// newModel has no processes: an item takes what its task takes by the clock of the test's
// bubble.
func newModel(t *testing.T, max int) *plant {
	t.Helper()
	pl, seats, fakes := testPool(max, gpu.CPU)
	device := make(chan struct{}, 1)
	p := startPlant(t, pl, max)
	p.slots, p.seats, p.nap = fakes, seats, 20*time.Millisecond
	for _, f := range fakes {
		f.Do = func(_ context.Context, task launch.Task, call slot.Call) error {
			for item, err := range call.Work.Items() {
				if err != nil {
					return err
				}
				if task.Name == "alone" {
					device <- struct{}{}
					time.Sleep(30 * time.Millisecond)
					<-device
				} else {
					time.Sleep(p.nap)
				}
				call.Work.Done(calls.Done{Result: gpumux.Result{Index: item.Index}})
			}
			return nil
		}
	}
	return p
}

// startPlant searches until the test ends.
func startPlant(t *testing.T, pl *pool.Pool, max int) *plant {
	core, seen := observer.New(zap.InfoLevel)
	place := config.Placement{
		Pool: config.Pool{GPUsPerSlot: 1}, MaxSlots: max,
		Groups: []config.Group{{Name: gpu.CPU, Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: gpu.CPU}}}},
	}
	s := newSizing(pl, place, free{gpu.CPU: {Total: 64 << 30, Free: 50 << 30}}.Status, zap.New(core))
	p := &plant{sizing: s, t: t, seen: seen, callers: max + 2, results: map[int64]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

// call runs a task over the items from first up to end, as a worker does.
func (p *plant) call(ctx context.Context, task string, first, end int64) error {
	h, err := p.pool.Acquire(ctx, pool.Want{Task: task})
	if err != nil {
		return err
	}
	defer p.pool.Release(h)
	stint := p.Begin(h, task, "", false)
	defer stint.End()
	return h.Run(ctx, launch.Task{Name: task}, slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
		for i := first; i < end; i++ {
			if !yield(calls.Item{Index: i, Value: json.RawMessage("0")}, nil) {
				return
			}
		}
	}, OnDone: func(d calls.Done) {
		stint.Done(d.Peak)
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.Fault == nil {
			p.results[d.Index]++
		}
	}}})
}

// work makes calls of chunks of items, more than there are slots, until enough says so.
func (p *plant) work(task string, chunk int64, enough func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Hour)
	defer cancel()
	var all sync.WaitGroup
	for range p.callers {
		all.Go(func() {
			for ctx.Err() == nil && !enough() {
				p.mu.Lock()
				first := p.next
				p.next += chunk
				p.mu.Unlock()
				err := p.call(ctx, task, first, first+chunk)
				if err != nil {
					p.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.NoError(p.t, ctx.Err(), "the search does not settle; now %d slots", p.pool.Size())
}

// found returns what reports whether the log tells a task's number of slots.
func (p *plant) found(task string) func() bool {
	return func() bool {
		return p.seen.Filter(func(e observer.LoggedEntry) bool {
			return e.ContextMap()["task"] == task && e.ContextMap()["slots"] != nil
		}).Len() > 0
	}
}

// processes is the number of slots with a process.
func (p *plant) processes() int {
	n := 0
	for _, each := range p.slots {
		if each.State() != slot.Vacant {
			n++
		}
	}
	return n
}

func TestSizing_OneSlotForATaskThatSaturates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := newModel(t, 8), time.Now()
		p.work("alone", 8, p.found("alone"))
		require.Equal(t, 1, p.pool.Size())
		require.Less(t, time.Since(began), 5*time.Second, "a measurement of one slot and one of two")
		synctest.Wait()
		require.Equal(t, 1, p.processes(), "the process of the trial is gone")
	})
}

func TestSizing_ManySlotsForATaskThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := newModel(t, 6), time.Now()
		p.work("patient", 11, p.found("patient"))
		require.Equal(t, 6, p.pool.Size(), "1, 2, 4, and no more than the bound")
		require.Less(t, time.Since(began), 20*time.Second, "four measurements, some of which begin again")
		line := p.seen.All()[0]
		require.Regexp(t, `^pool gpu: 6 slots per device for task patient: (29\d|300)(\.\d+)? items/s$`, line.Message)
	})
}

// What was found is known when the task comes again; another edition is searched anew.
func TestSizing_AnotherTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newModel(t, 4)
		p.work("patient", 11, p.found("patient"))
		require.Equal(t, 4, p.pool.Size())
		time.Sleep(2 * window)
		p.work("alone", 8, p.found("alone"))
		require.Equal(t, 1, p.pool.Size())
		time.Sleep(2 * window)
		p.work("patient", 11, func() bool { return p.pool.Size() == 4 })
		time.Sleep(2 * window)
		p.Begin(p.seats[0], "patient", "new", false).End()
		require.Equal(t, 1, p.pool.Size())
		p.ranOnce()
	})
}

// Without enough work nothing is measured, nor while two tasks run side by side: neither
// says what more slots would do.
func TestSizing_NothingToLearn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newModel(t, 4)
		p.callers = 2
		until := time.Now().Add(5 * time.Minute)
		p.work("patient", 11, func() bool { return time.Now().After(until) })
		require.Equal(t, 4, p.pool.Size(), "a trial to which the work does not come")
		require.Zero(t, p.seen.Len())
		other := p.Begin(p.seats[3], "alone", "", false)
		p.callers, until = 3, time.Now().Add(5*time.Minute)
		p.work("patient", 11, func() bool { return time.Now().After(until) })
		require.Zero(t, p.seen.Len())
		other.End()
		p.callers = 6
		p.work("patient", 11, p.found("patient"))
		require.Equal(t, 4, p.pool.Size())
	})
}

// A task that follows one with more slots is measured when their last calls have ended.
func TestSizing_CallsOfALargerNumberAreNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newModel(t, 4)
		p.work("patient", 11, p.found("patient"))
		time.Sleep(2 * window)
		var stints []*stint
		for _, seat := range p.seats {
			stints = append(stints, p.Begin(seat, "alone", "", false))
		}
		for range 30 {
			time.Sleep(sizingEvery)
			for _, each := range stints {
				each.Done(0)
			}
		}
		require.Equal(t, 1, p.pool.Size())
		for _, each := range stints {
			each.End()
		}
	})
}

// ranOnce checks that every item has one result.
func (p *plant) ranOnce() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(p.t, p.results, int(p.next))
	for i, n := range p.results {
		require.Equal(p.t, 1, n, "item %d", i)
	}
}

// free is a device that says how much memory it has left.
type free map[string]gpu.Memory

func (f free) Status(uuid string) (gpu.Status, error) { return gpu.Status{Memory: f[uuid]}, nil }

func TestSizing_RoomInMemory(t *testing.T) {
	a, b := gpu.Device{Kind: gpu.KindGPU, UUID: "a"}, gpu.Device{Kind: gpu.KindGPU, UUID: "b"}
	s := &sizing{
		memory: 4 << 30, groups: []config.Group{{Devices: []gpu.Device{a}}, {Devices: []gpu.Device{b}}},
		status: free{"a": {Total: 80 << 30, Free: 60 << 30}, "b": {Total: 80 << 30, Free: 20 << 30}}.Status,
	}
	require.Equal(t, 4, s.room(0, 2, 4))
	require.Equal(t, 6, s.room(0, 2, 16), "four more have room on b")
	s.memory = 0 // 30 GiB of b for each of two
	require.Equal(t, 2, s.room(0, 2, 4))
	s.status = free{"a": {Total: 80 << 30, Free: 70 << 30}, "b": {}}.Status
	require.Equal(t, 4, s.room(20<<30, 1, 8), "an item held 20 GiB, and a context takes some")
	s.reserve = 30 << 30
	require.Equal(t, 2, s.room(20<<30, 1, 8), "40 GiB are left")
	s.reserve = 0
	s.groups = []config.Group{{Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: "c"}}}}
	s.status = free{"c": {Total: 64 << 30, Free: 50 << 30}}.Status
	require.Equal(t, 3, s.room(20<<30, 1, 8))
}

// A lack of memory ends a trial. Later it halves the slots, once for all calls of that
// time; with a budget it is the item's affair.
func TestSizing_MemoryThatDoesNotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newModel(t, 8)
		p.work("patient", 11, func() bool { return p.pool.Size() == 4 })
		time.Sleep(time.Second)
		first, second := p.Begin(p.seats[0], "patient", "", false), p.Begin(p.seats[1], "patient", "", false)
		first.Failed(gpumux.FaultTaskError)
		require.Equal(t, 4, p.pool.Size())
		time.Sleep(time.Second)
		first.Failed(gpumux.FaultDeviceOOM)
		second.Failed(gpumux.FaultDeviceOOM)
		require.Equal(t, 2, p.pool.Size())
		require.Equal(t, 1, p.seen.FilterMessageSnippet("does not do for 4 slots of task patient; it goes on with 2").Len())
		first.End()
		time.Sleep(time.Second)
		again := p.Begin(p.seats[0], "patient", "", false)
		p.memory = 1 << 30
		again.Failed(gpumux.FaultDeviceOOM)
		require.Equal(t, 2, p.pool.Size())
		p.memory = 0
		again.Failed(gpumux.FaultHostOOM)
		again.Failed(gpumux.FaultHostOOM)
		require.Equal(t, 1, p.pool.Size())
	})
}
