package slot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// An item runs until the file that it names is there.
const sharedPy = `
import asyncio, gpumux, os, signal, threading, time

def note(what):
    with open("notes", "a") as f: f.write(what + "\n")

def tell():
    while True:
        gpumux.progress({"running": 2, "text": "x" * 300})
        time.sleep(0.005)

@gpumux.concurrent(max=4)
async def wait(x):
    if x == "tells": threading.Thread(target=tell, daemon=True).start()
    note(f"began {x}")
    if x == "blocks": signal.pause()
    while x == "holds" and not os.path.exists("open holds"): time.sleep(0.005)
    try:
        while not os.path.exists(f"open {x}"):
            await asyncio.sleep(0.005)
            if x == "reports": gpumux.progress(1)
    except asyncio.CancelledError:
        note(f"cancelled {x}")
        if x != "stubborn": raise
        await asyncio.Event().wait()
    if x == "dies": os.kill(os.getpid(), signal.SIGKILL)
    return [x, os.getpid()]

def plain(x):
    return [x, os.getpid()]
`

// shared is a slot whose calls may share a process.
type shared struct {
	*testing.T
	*slot.Slot
	dir string
}

func newShared(t *testing.T) *shared { return newSharedWith(t, 300*time.Millisecond) }

func newSharedWith(t *testing.T, grace time.Duration) *shared {
	t.Helper()
	t.Parallel()
	s := &shared{T: t, dir: t.TempDir()}
	s.Slot = slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: grace})
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.Zero(t, s.PID())
	})
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "shared.py"), []byte(sharedPy), 0o644))
	return s
}

func (s *shared) task() launch.Task {
	return launch.Task{Name: "wait", Python: "shared.py:wait", Dir: s.dir}
}

// open lets items end.
func (s *shared) open(items ...string) {
	s.Helper()
	for _, item := range items {
		require.NoError(s, os.WriteFile(filepath.Join(s.dir, "open "+item), nil, 0o644))
	}
}

// noted waits until items have noted something, and returns all that they have.
func (s *shared) noted(notes ...string) string {
	s.Helper()
	var text string
	require.Eventually(s, func() bool {
		data, _ := os.ReadFile(filepath.Join(s.dir, "notes"))
		text = string(data)
		return !slices.ContainsFunc(notes, func(note string) bool { return !strings.Contains(text, note+"\n") })
	}, time.Minute, time.Millisecond, "%s", notes)
	return text
}

// visit is a call that is under way, and what it has come to.
type visit struct {
	*shared
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	values []string
	ended  chan error
}

// call begins a call of so many items.
func (s *shared) call(task launch.Task, call slot.Call, items ...string) *visit {
	v := &visit{shared: s, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancelCause(s.Context())
	v.cancel = cancel
	var list []any
	for _, item := range items {
		list = append(list, item)
	}
	w, ok := call.Work.(*gputest.Work)
	if !ok {
		w = work()
	}
	call.Work, call.Len = w, int64(len(items))
	w.From, w.OnDone = gputest.Values(list...), func(d calls.Done) {
		v.mu.Lock()
		defer v.mu.Unlock()
		if d.Fault != nil {
			v.values = append(v.values, string(d.Fault.Kind))
			return
		}
		v.values = append(v.values, string(d.Value))
	}
	go func() { v.ended <- s.Slot.Run(ctx, task, call) }()
	return v
}

// got waits for so many results.
func (v *visit) got(n int) (items []string) {
	v.Helper()
	require.Eventually(v, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		items = nil
		for _, value := range v.values {
			item, _, _ := strings.Cut(strings.TrimPrefix(value, `["`), `"`)
			items = append(items, item)
		}
		return len(items) == n
	}, time.Minute, time.Millisecond)
	return items
}

// roomy waits until the slot has room for another call beside so many.
func (s *shared) roomy(sharers int) {
	s.Helper()
	require.Eventually(s, func() bool {
		n, room := s.Room()
		return n == sharers && room > 0
	}, time.Minute, time.Millisecond)
}

// A slot is full over the borders of calls, and results come in the order of their ends.
func TestSlot_CallsShareAProcess(t *testing.T) {
	s := newShared(t)
	_, room := s.Room()
	require.Zero(t, room, "nobody knows that the task can")
	var spare atomic.Int32
	a := s.call(s.task(), slot.Call{Spare: func() { spare.Add(1) }}, "a0", "a1", "a2")
	s.noted("began a0", "began a1", "began a2")
	s.roomy(1)
	require.Eventually(t, func() bool { return spare.Load() == 1 }, time.Minute, time.Millisecond, "it tells of its room")
	_, room = s.Room()
	require.EqualValues(t, 3, room, "half as many as run wait for those, less what there is")
	b := s.call(s.task(), slot.Call{}, "b0", "b1", "b2")
	require.NotContains(t, s.noted("began b0"), "began b1", "four run at the same time")
	s.open("a2", "b0")
	require.Equal(t, []string{"a2"}, a.got(1), "though others were first")
	require.Equal(t, []string{"b0"}, b.got(1))
	s.noted("began b1", "began b2")
	pid := s.PID()
	s.open("b1", "b2")
	require.NoError(t, <-b.ended, "while the other call goes on")
	s.roomy(1)
	s.open("a0", "a1")
	require.NoError(t, <-a.ended)
	require.Equal(t, pid, s.PID())
	require.EqualValues(t, 1, s.Stats().Processes)
	require.Eventually(t, func() bool { n, room := s.Room(); return n == 0 && room == 0 }, time.Minute, time.Millisecond)
}

// What cannot share a process waits for the end of those that do, and so does what comes
// behind it.
func TestSlot_WhatCannotShareWaits(t *testing.T) {
	for name, other := range map[string]func(*shared) *visit{
		"another task": func(s *shared) *visit {
			return s.call(launch.Task{Name: "plain", Python: "shared.py:plain", Dir: s.dir}, slot.Call{}, "p")
		},
		"another budget": func(s *shared) *visit { return s.call(s.task(), slot.Call{Memory: 1 << 30}, "p") },
		"a clean one":    func(s *shared) *visit { return s.call(s.task(), slot.Call{Call: calls.Call{Clean: true}}, "p") },
		"apart":          func(s *shared) *visit { return s.call(s.task(), slot.Call{Call: calls.Call{Apart: true}}, "p") },
		"fresh": func(s *shared) *visit {
			return s.call(s.task(), slot.Call{Call: calls.Call{Mode: gpumux.ModeFresh}}, "p")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			a := s.call(s.task(), slot.Call{}, "a0")
			s.roomy(1)
			p := other(s)
			require.Eventually(t, func() bool { _, room := s.Room(); return room == 0 }, time.Minute, time.Millisecond)
			c := s.call(s.task(), slot.Call{}, "c0")
			s.open("c0", "p")
			require.NotContains(t, s.noted("began a0"), "began p")
			require.NotContains(t, s.noted("began a0"), "began c0")
			s.open("a0")
			require.NoError(t, errors.Join(<-a.ended, <-p.ended, <-c.ended))
			require.Equal(t, []string{"p"}, p.got(1))
		})
	}
}

// A call that waits for the end of others hears that its caller gives up, and then others
// may join again.
func TestSlot_AWaitingCallHearsItsEnd(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{}, "a0")
	s.roomy(1)
	b := s.call(s.task(), slot.Call{Call: calls.Call{Apart: true}}, "b0")
	require.Eventually(t, func() bool { _, room := s.Room(); return room == 0 }, time.Minute, time.Millisecond)
	why := errors.New("nobody wants it")
	b.cancel(why)
	require.ErrorIs(t, <-b.ended, why)
	s.roomy(1)
	s.open("a0")
	require.NoError(t, <-a.ended)
}

// Who sees a call end sees no room in its slot any more.
func TestSlot_NoRoomAfterTheLastCall(t *testing.T) {
	s := newShared(t)
	s.open("x")
	for range 300 {
		require.NoError(t, <-s.call(s.task(), slot.Call{}, "x").ended)
		sharers, room := s.Room()
		require.Zero(t, sharers)
		require.Zero(t, room)
	}
}

// An end of the process that is asked for waits for the calls, and none comes before it.
func TestSlot_ClearWaitsForSharers(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{}, "a0")
	s.roomy(1)
	cleared := make(chan error, 1)
	go func() { cleared <- s.Clear(t.Context()) }()
	require.Eventually(t, func() bool { _, room := s.Room(); return room == 0 }, time.Minute, time.Millisecond)
	b := s.call(s.task(), slot.Call{}, "b0")
	pid := s.PID()
	s.open("a0", "b0")
	require.NoError(t, errors.Join(<-a.ended, <-cleared, <-b.ended))
	require.NotEqual(t, pid, s.PID())
}

// A caller that gives up takes only its own items along.
func TestSlot_ACancelledCallLeavesTheOthers(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{}, "a0", "a1")
	s.noted("began a1")
	s.roomy(1)
	b := s.call(s.task(), slot.Call{}, "b0", "b1", "b2")
	s.noted("began b1")
	why := errors.New("nobody wants it")
	b.cancel(why)
	require.ErrorIs(t, <-b.ended, why)
	require.NotContains(t, s.noted("cancelled b0", "cancelled b1"), "began b2")
	pid := s.PID()
	s.open("a0", "a1")
	require.NoError(t, <-a.ended)
	require.ElementsMatch(t, []string{"a0", "a1"}, a.got(2))
	require.Equal(t, pid, s.PID())
	require.Empty(t, b.got(0))
}

// If its items do not end, the process does, and those of others run again.
func TestSlot_ACancelledItemThatGoesOn(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{}, "a0", "a1")
	s.noted("began a1")
	s.roomy(1)
	b := s.call(s.task(), slot.Call{}, "stubborn")
	s.noted("began stubborn")
	pid := s.PID()
	s.open("a0")
	a.got(1)
	b.cancel(context.Canceled)
	require.ErrorIs(t, <-b.ended, context.Canceled)
	s.open("a1")
	require.NoError(t, <-a.ended)
	require.Equal(t, []string{"a0", "a1"}, a.got(2))
	require.NotEqual(t, pid, s.PID())
	require.Equal(t, 1, strings.Count(s.noted(), "began a0\n"), "it had ended")
}

// If items of one call may run elsewhere, the process ends at once, and those of others
// run again.
func TestSlot_ALapsedCallEndsTheProcess(t *testing.T) {
	for _, how := range []string{"by its context", "by a look"} {
		t.Run(how, func(t *testing.T) {
			s := newShared(t)
			a := s.call(s.task(), slot.Call{}, "a0")
			s.roomy(1)
			var lapsed atomic.Bool
			b := s.call(s.task(), slot.Call{Held: func() error {
				if lapsed.Load() {
					return fmt.Errorf("stopped: %w", calls.ErrLapsed)
				}
				return nil
			}}, "b0")
			s.noted("began b0")
			pid := s.PID()
			if how == "by a look" {
				lapsed.Store(true)
			} else {
				b.cancel(fmt.Errorf("lost: %w", calls.ErrLapsed))
			}
			require.ErrorIs(t, <-b.ended, calls.ErrLapsed)
			s.open("a0", "b0")
			require.NoError(t, <-a.ended)
			require.NotEqual(t, pid, s.PID())
			require.NotContains(t, s.noted(), "cancelled b0", "there was no grace")
			require.Equal(t, 1, strings.Count(s.noted(), "began b0\n"))
		})
	}
}

// A death is charged to the calls whose items ran, each with its own. One whose items
// only waited goes on in a new process.
func TestSlot_ADeathIsChargedToWhatRan(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{}, "a0", "a1", "a2")
	s.noted("began a2")
	s.roomy(1)
	b := s.call(s.task(), slot.Call{}, "dies")
	s.noted("began dies")
	s.roomy(2)
	c := s.call(s.task(), slot.Call{}, "c0")
	require.Eventually(t, func() bool { n, _ := s.Room(); return n == 3 }, time.Minute, time.Millisecond)
	s.open("dies", "c0")
	var first, second *gpumux.Fault
	require.ErrorAs(t, <-a.ended, &first)
	require.ErrorAs(t, <-b.ended, &second)
	require.NoError(t, <-c.ended)
	for _, f := range []*gpumux.Fault{first, second} {
		require.Equal(t, gpumux.FaultCrash, f.Kind)
		require.True(t, f.Concurrent)
		require.False(t, f.Alone)
	}
	require.Equal(t, []int{3, 1}, []int{first.Batch, second.Batch})
	require.Equal(t, []string{"", `"dies"`}, []string{first.Item, second.Item})
	require.NotSame(t, first, second)
}

// Each item has its own time in each of its tries. Its process ends the one that is late,
// and the others go on.
func TestSlot_EachItemHasItsOwnTimeout(t *testing.T) {
	s := newShared(t)
	s.open("quick")
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience, Attempts: 2}}, "reports", "hangs", "quick")
	require.Equal(t, []string{"quick"}, a.got(1))
	s.roomy(1)
	b := s.call(s.task(), slot.Call{}, "b0")
	s.noted("began b0")
	pid := s.PID()
	require.Equal(t, []string{"quick", "timeout"}, a.got(2))
	require.Equal(t, 2, strings.Count(s.noted(), "cancelled hangs\n"))
	s.open("reports", "b0")
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended, "it has no limit")
	require.Equal(t, pid, s.PID())
}

// An item that does not end when it is late ends its process.
func TestSlot_AStubbornItemIsLate(t *testing.T) {
	s := newShared(t)
	b := s.call(s.task(), slot.Call{}, "b0")
	s.roomy(1)
	s.open("quick")
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience}}, "stubborn", "reports", "quick")
	s.noted("cancelled stubborn")
	var fault *gpumux.Fault
	require.ErrorAs(t, <-a.ended, &fault)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, 2, fault.Batch, "either may have been the one")
	s.open("b0")
	require.NoError(t, <-b.ended, "it has no limit, and is not to blame")
	require.Equal(t, 2, strings.Count(s.noted(), "began b0\n"))
}

// The time for which an item holds up the others is none of theirs.
func TestSlot_AHeldItemIsNotLate(t *testing.T) {
	s := newSharedWith(t, time.Minute)
	s.open("quick")
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience}}, "quick", "waits", "holds")
	s.noted("began holds")
	<-time.After(2 * patience)
	s.open("waits", "holds")
	require.ElementsMatch(t, []string{"quick", "waits", "holds"}, a.got(3))
	require.NoError(t, <-a.ended)
}

// Where no item succeeds the process may be what hangs, and it is ended.
func TestSlot_AProcessInWhichAllAreLate(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience}}, "a0", "a1")
	var fault *gpumux.Fault
	require.ErrorAs(t, <-a.ended, &fault)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, 2, fault.Batch)
	require.NotContains(t, s.noted(), "cancelled a0\n")
}

// What a process says of itself is shown beside its oldest item, and restarts no clock.
func TestSlot_AProcessThatReports(t *testing.T) {
	s := newShared(t)
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience}}, "hangs", "tells")
	want := `{"running":2,"text":"` + strings.Repeat("x", 300) + `"}`
	require.Eventually(t, func() bool {
		r := s.Stats().Running
		return r != nil && r.Index == 0 && r.Progress == want
	}, time.Minute, time.Millisecond)
	var fault *gpumux.Fault
	require.ErrorAs(t, <-a.ended, &fault)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Nil(t, s.Stats().Running)
}

// An item that blocks the others makes all of them late.
func TestSlot_ABlockedLoopIsALateItem(t *testing.T) {
	s := newShared(t)
	b := s.call(s.task(), slot.Call{}, "b0")
	s.roomy(1)
	a := s.call(s.task(), slot.Call{Call: calls.Call{Timeout: patience}}, "blocks", "waits")
	var fault *gpumux.Fault
	require.ErrorAs(t, <-a.ended, &fault)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, 2, fault.Batch)
	require.Contains(t, fault.Traceback, "in wait")
	s.open("b0")
	require.NoError(t, <-b.ended, "it has no limit, and is not to blame")
}

// A call that has no use for the process leaves it to the others, or as it is.
func TestSlot_ACallMeetsItsProcess(t *testing.T) {
	s := newShared(t)
	other := errors.New("another would be better")
	var met calls.Process
	alone := s.call(s.task(), slot.Call{Work: &gputest.Work{OnMeet: func(p calls.Process) error { met = p; return other }}}, "a0")
	require.ErrorIs(t, <-alone.ended, other)
	require.Equal(t, []int{0, 4}, []int{met.Batch, met.Concurrent})
	require.Regexp(t, `^[0-9a-f]{6}$`, met.Edition)
	pid := s.PID()
	b := s.call(s.task(), slot.Call{}, "b0")
	s.roomy(1)
	require.ErrorIs(t, <-s.call(s.task(), slot.Call{Work: &gputest.Work{OnMeet: func(calls.Process) error { return other }}}, "c0").ended, other)
	s.open("b0")
	require.NoError(t, <-b.ended)
	require.Equal(t, pid, s.PID())
	require.NotContains(t, s.noted(), "began a0")
	require.NotContains(t, s.noted(), "began c0")
}

// A call with another edition of the code does not join those that run.
func TestSlot_AnotherEditionDoesNotShare(t *testing.T) {
	s := newShared(t)
	var edition string
	a := s.call(s.task(), slot.Call{Work: &gputest.Work{OnMeet: func(p calls.Process) error { edition = p.Edition; return nil }}}, "a0")
	s.roomy(1)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "shared.py"), []byte(sharedPy+"\n# edited\n"), 0o644))
	var fault *gpumux.Fault
	require.ErrorAs(t, <-s.call(s.task(), slot.Call{Call: calls.Call{Edition: edition}}, "c0").ended, &fault, "at once: no wait brings that edition back")
	require.NotEqual(t, edition, fault.Edition)
	s.roomy(1)
	pid := s.PID()
	b := s.call(s.task(), slot.Call{}, "b0")
	s.open("a0", "b0")
	require.NoError(t, errors.Join(<-a.ended, <-b.ended))
	require.NotEqual(t, pid, s.PID())
}

// Stop and Recycle end all calls.
func TestSlot_TheEndOfASlotIsThatOfAllCalls(t *testing.T) {
	s := newShared(t)
	begin := func() (a, b, c *visit) {
		a = s.call(s.task(), slot.Call{}, "a0")
		s.roomy(1)
		b = s.call(s.task(), slot.Call{}, "b0", "b1", "b2")
		s.roomy(2)
		c = s.call(s.task(), slot.Call{}, "c0")
		require.Eventually(t, func() bool { n, _ := s.Room(); return n == 3 }, time.Minute, time.Millisecond)
		return a, b, c
	}
	a, b, c := begin()
	require.NoError(t, s.Recycle(t.Context(), "the device is wanted"))
	require.Zero(t, s.PID())
	for _, each := range []*visit{a, b, c} {
		var fault *gpumux.Fault
		require.ErrorAs(t, <-each.ended, &fault)
		require.True(t, fault.Blameless)
	}
	a, b, c = begin()
	require.NoError(t, s.Stop(t.Context()))
	for _, each := range []*visit{a, b, c} {
		require.ErrorIs(t, <-each.ended, slot.ErrStopped)
	}
}

const chaosPy = `
import asyncio, gpumux, os, random
@gpumux.concurrent(max=8)
async def f(x):
    await asyncio.sleep(random.random() * 0.02)
    if random.random() < 0.002: os._exit(3)
    if random.random() < 0.02: raise ValueError("no")
    if random.random() < 0.02: gpumux.progress(x)
    return "y" * (1 << 20) if random.random() < 0.02 else x
`

// Whatever happens to calls that share a process, each ends, and each of its items has
// one result at most, before that.
func TestSlot_SharersUnderChaos(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chaos.py"), []byte(chaosPy), 0o644))
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: 500 * time.Millisecond})
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	task := launch.Task{Name: "f", Python: "chaos.py:f", Dir: dir, Recycle: 200}
	why := errors.New("nobody wants it")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 15 {
				n := 1 + rand.IntN(20)
				list := make([]any, n)
				ctx, cancel := context.WithCancelCause(t.Context())
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(40))*time.Millisecond, func() { cancel(why) })
				}
				var over atomic.Bool
				var mu sync.Mutex
				seen := map[int64]int{}
				err := s.Run(ctx, task, slot.Call{Call: calls.Call{Len: int64(n), Apart: rand.IntN(10) == 0}, Work: &gputest.Work{From: gputest.Values(list...), OnDone: func(d calls.Done) {
					mu.Lock()
					defer mu.Unlock()
					assert.False(t, over.Load(), "a result after the end")
					seen[d.Index]++
				}}})
				over.Store(true)
				mu.Lock()
				for i, times := range seen {
					assert.Equal(t, 1, times, "item %d", i)
				}
				switch {
				case err == nil:
					assert.Len(t, seen, n)
				case !errors.Is(err, why):
					assert.ErrorAs(t, err, new(*gpumux.Fault))
				}
				mu.Unlock()
				cancel(nil)
			}
		})
	}
	all.Wait()
}
