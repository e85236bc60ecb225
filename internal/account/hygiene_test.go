package account

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/session"
)

const (
	mib = 1 << 20
	// most is how many items a process may be given ahead.
	most = 64
)

// all is a process of which nobody tells what is in use.
func all(held int64) session.Holding { return session.Holding{Held: held} }

func TestHygiene_TrimsWhatComesBack(t *testing.T) {
	const budget = 1000 * mib
	ran := bill{began: true}
	host := hygiene{budget: budget, host: true, bill: ran}
	since := func(floor int64) hygiene { return hygiene{budget: budget, host: true, bill: ran, floor: floor} }
	device := hygiene{budget: budget, bill: ran}
	for _, c := range []struct {
		name string
		h    hygiene
		m    session.Holding
		idle bool
		want bool
	}{
		{"no budget", hygiene{host: true, bill: ran}, all(1 << 40), true, false},
		{"little is held", host, all(490 * mib), true, false},
		{"half, and nobody waits", host, all(510 * mib), true, true},
		{"half, and work waits", host, all(510 * mib), false, false},
		{"three quarters, and work waits", host, all(760 * mib), false, true},
		{"nothing ran since the last one", hygiene{budget: budget, host: true}, all(990 * mib), true, false},
		{"nothing grew since the last one", since(760 * mib), all(800 * mib), false, false},
		{"it grew since the last one", since(700 * mib), all(760 * mib), false, true},
		{"a device where nobody tells", device, all(990 * mib), true, false},
		{"an arena that gives nothing back", device, session.Holding{Held: 940 * mib, Unused: 800 * mib}, true, false},
		{"a cache", device, session.Holding{Held: 940 * mib, Unused: 800 * mib, Spare: 60 * mib}, false, true},
		{"a small cache", device, session.Holding{Held: 940 * mib, Unused: 800 * mib, Spare: 40 * mib}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.h.due(c.m, c.idle)) })
	}
}

// trims lets items run that take a second each, and as many seconds more after a trim,
// and returns how long all trims took of how long all items took.
func trims(items int, took, slower float64) (cost, busy float64, times int) {
	var b bill
	for i, since := 0, 100; i < items; i, since = i+1, since+1 {
		item := 1.0
		if since == 0 {
			item += slower
			cost += slower
		}
		b.ran(1, time.Duration(item*float64(time.Second)))
		busy += item
		if i > 5 && b.allows() {
			b.trimmed(time.Duration(took * float64(time.Second)))
			cost += took
			times++
			since = -1
		}
	}
	return cost, busy, times
}

func TestBill_TrimsCostAShareOfTheTimeWithWhatTheySlowDown(t *testing.T) {
	cost, busy, times := trims(10_000, 0.39, 0)
	require.InDelta(t, 0.05, cost/busy, 0.005, "as much as they may, when they cost nothing afterwards")
	require.Greater(t, times, 1000)
	cost, busy, times = trims(10_000, 0.01, 10)
	require.Less(t, cost/busy, 0.055, "and with what they slow down afterwards")
	require.Greater(t, times, 1)
	require.Less(t, times, 60)
	// The first item loads a model. That is no reason to find later ones fast.
	var b bill
	b.ran(1, time.Hour)
	for range 6 {
		b.ran(1, time.Second)
	}
	b.trimmed(time.Millisecond)
	b.ran(2, 8*time.Second)
	require.False(t, b.allows(), "it is not known yet what it cost")
	b.ran(2, 2*time.Second)
	require.InDelta(t, 6, b.last, 0.01)
	require.False(t, b.allows())
}

func TestHygiene_ATrimTellsGarbageFromALeak(t *testing.T) {
	for _, c := range []struct {
		name                                string
		first, swing, needed, unused, after int64
		due, recycled                       bool
	}{
		{"a leak", 100, 0, 910, 0, 905, true, true},
		{"a leak beside an arena that is free", 100, 0, 910, 80, 905, true, true},
		{"with what items peak above it", 100, 300, 610, 0, 605, true, true},
		{"garbage", 100, 0, 910, 0, 300, true, false},
		{"enough garbage near the budget", 100, 0, 1000, 0, 899, true, false},
		{"enough room for now", 100, 300, 590, 0, 590, false, false},
		{"a new process would need as much after its first item", 850, 0, 920, 0, 920, false, false},
		{"nothing has run yet", 0, 0, 920, 0, 920, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := func(needed int64) session.Holding {
				return session.Holding{Held: (needed + c.unused) * mib, Unused: c.unused * mib}
			}
			h := hygiene{budget: 1000 * mib, first: c.first * mib, swing: c.swing * mib}
			require.Equal(t, c.due, h.due(with(c.needed), false))
			require.Equal(t, c.recycled, h.trimmed(with(c.needed), with(c.after), time.Hour) != "")
			h.lasting = true
			require.False(t, h.due(with(c.needed), false), "a lease keeps its process")
			require.Empty(t, h.trimmed(with(c.needed), with(c.after), time.Hour))
		})
	}
}

func TestHygiene_KnowsWhatItemsPeakAt(t *testing.T) {
	h := hygiene{budget: 1000 * mib}
	for i := range 20 {
		h.ended(i+1, 1, time.Millisecond, all(100*mib), 500*mib)
		h.ended(i+1, 1, time.Millisecond, all(100*mib), 0) // not measured
	}
	require.InDelta(t, 400*mib, h.swing, 10*mib)
	h.ended(21, 1, time.Millisecond, all(300*mib), 1000*mib)
	require.False(t, h.grown(all(300*mib)), "one large item is not usual")
	require.True(t, h.grown(all(550*mib)))
}

func TestHygiene_GivesFewItemsAheadUntilItKnows(t *testing.T) {
	h := hygiene{budget: 1000 * mib}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 64} {
		require.Equal(t, want, h.ahead(all(100*mib), most))
		require.Equal(t, want, h.given)
	}
	require.Equal(t, fewAhead, h.ahead(all(760*mib), most))
	require.Equal(t, 1, h.ahead(all(910*mib), most))
	require.Equal(t, 2, h.ahead(all(100*mib), most))
	for i := range 20 {
		h.ended(i+1, 1, time.Millisecond, all(int64(100+10*i)*mib), 0)
	}
	require.Equal(t, most, (&hygiene{budget: 1000 * mib, given: most}).ahead(session.Holding{Held: 940 * mib, Unused: 800 * mib}, most),
		"an arena is not short of memory")
	for range 10 {
		h.ahead(all(300*mib), most)
	}
	require.InDelta(t, 700/4/10, h.given, 2, "a quarter of what is left, at 10 MiB each")
	h = hygiene{}
	require.Equal(t, most, h.ahead(all(100*mib), most))
}
