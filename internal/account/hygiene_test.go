package account

import (
	"math/rand/v2"
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
		{"little grew since the last one, near the budget", since(930 * mib), all(945 * mib), false, true},
		{"nothing grew since the last one, near the budget", since(940 * mib), all(945 * mib), false, false},
		{"a device where nobody tells", device, all(990 * mib), true, false},
		{"an arena that gives nothing back", device, session.Holding{Held: 940 * mib, Unused: 800 * mib}, true, false},
		{"a cache", device, session.Holding{Held: 940 * mib, Unused: 800 * mib, Spare: 60 * mib}, false, true},
		{"a small cache", device, session.Holding{Held: 940 * mib, Unused: 800 * mib, Spare: 40 * mib}, false, false},
		{"a small cache beside little room", device, session.Holding{Held: 940 * mib, Unused: 20 * mib, Spare: 20 * mib}, false, true},
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

func words(_ string, text string) string { return text }

func TestHygiene_ATrimTellsGarbageFromALeak(t *testing.T) {
	for _, c := range []struct {
		after int64
		want  string
	}{{950 * mib, ForLeak}, {700 * mib, ForLeak}, {300 * mib, ""}} {
		for _, unused := range []int64{0, 500 * mib} {
			with := func(needed int64) session.Holding { return session.Holding{Held: needed + unused, Unused: unused} }
			h := hygiene{budget: 1000 * mib}
			for i := 0; h.leak == ""; i++ {
				h.ended(i+1, 1, time.Millisecond, with(int64(100+10*i)*mib), 0)
			}
			require.True(t, h.due(with(950*mib), false))
			why, said := h.trimmed(with(950*mib), with(c.after), time.Hour)
			require.Equal(t, c.want, why)
			require.Equal(t, c.want != "", said != "")
			require.False(t, h.due(with(950*mib), false), "and it is not asked again for the same growth")
		}
	}
}

func TestHygiene_TwoPoorTrimsNearTheBudgetAreEnough(t *testing.T) {
	h := hygiene{budget: 1000 * mib, first: 100 * mib}
	require.Empty(t, words(h.trimmed(all(950*mib), all(940*mib), time.Millisecond)))
	require.Equal(t, "930MiB of 1000MiB are needed, and 2 trims in a row gave little back", words(h.trimmed(all(950*mib), all(930*mib), time.Millisecond)))

	h = hygiene{budget: 1000 * mib, first: 100 * mib}
	h.trimmed(all(950*mib), all(940*mib), time.Millisecond)
	require.Empty(t, words(h.trimmed(all(950*mib), all(840*mib), time.Millisecond)), "a good one")
	require.Empty(t, words(h.trimmed(all(950*mib), all(940*mib), time.Millisecond)), "counts anew")
	h = hygiene{budget: 1000 * mib, first: 920 * mib}
	for range 5 {
		require.Empty(t, words(h.trimmed(all(960*mib), all(950*mib), time.Millisecond)), "a new process would hold as much after its first item")
	}
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

// follow feeds a process's readings and tells at which item it would be recycled, 0 if
// never.
func follow(items int, held func(i int) int64, peak func(i int) int64) int {
	h := hygiene{budget: 1000 * mib}
	for i := range items {
		if h.ended(i+1, 1, time.Millisecond, all(held(i)), peak(i)); h.leak != "" {
			return i + 1
		}
	}
	return 0
}

func TestHygiene_FindsLeaksAndNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	noise := func(most int64) int64 { return r.Int64N(most*mib + 1) }
	none := func(int) int64 { return 0 }

	at := follow(1000, func(i int) int64 { return 100*mib + int64(i)*5*mib }, none)
	require.Greater(t, at, 120, "most of the budget is used")
	require.Less(t, at, 180, "which would be passed at item 180")

	at = follow(100_000, func(i int) int64 { return 100*mib + int64(i)*20<<10 + noise(50) }, none)
	require.Greater(t, at, 30_000)
	require.Less(t, at, 46_000, "a slow one under noise, which would pass the budget at item 46,000")

	at = follow(1000, func(i int) int64 { return 100*mib + int64(i)*5*mib }, func(i int) int64 { return 500*mib + int64(i)*5*mib })
	require.Less(t, at, 100, "items that peak 400 MiB higher would pass it at item 100")

	require.Zero(t, follow(10_000, func(int) int64 { return 600*mib + noise(300) }, none), "noise")
	require.Zero(t, follow(10_000, func(i int) int64 { return 300*mib + int64(min(i, 20))*25*mib + noise(20) }, none), "caches that fill")
	require.Zero(t, follow(10_000, func(i int) int64 { return 200*mib + int64(i%50)*12*mib }, none), "a saw: it is given back")
	require.Zero(t, follow(300, func(i int) int64 { return 100*mib + int64(i)*mib }, none), "a leak with much room left")
	require.Zero(t, follow(1000, none, none), "nobody measures")
}

func TestTrend_KeepsFewPoints(t *testing.T) {
	var tr trend
	for i := range 100_000 {
		tr.observe(i+1, int64(i), int64(i)+7)
	}
	require.LessOrEqual(t, len(tr.points), trendPoints)
	slope, rising := tr.slope()
	require.True(t, rising)
	require.InDelta(t, 1, slope, 0.1)
	require.EqualValues(t, 7, tr.swing)
	require.InDelta(t, 100_000, tr.rise(), 15_000)
}

func BenchmarkTrend_Slope(b *testing.B) {
	var tr trend
	i := 0
	for b.Loop() {
		i++
		tr.observe(i, int64(i%7)*mib, 0)
		tr.slope()
	}
}
