package hygiene

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	mib = 1 << 20
	// most is how many items a process may be given ahead.
	most = 64
)

func TestHygiene_TrimsUnderPressureAndForAShareOfTheTime(t *testing.T) {
	const budget = 1000 * mib
	for _, c := range []struct {
		name string
		h    Hygiene
		held int64
		idle bool
		want bool
	}{
		{"no budget", Hygiene{busy: time.Hour}, 1 << 40, true, false},
		{"little is held", Hygiene{Budget: budget, busy: time.Hour}, 490 * mib, true, false},
		{"half, and nobody waits", Hygiene{Budget: budget, busy: time.Hour}, 510 * mib, true, true},
		{"half, and work waits", Hygiene{Budget: budget, busy: time.Hour}, 510 * mib, false, false},
		{"three quarters, and work waits", Hygiene{Budget: budget, busy: time.Hour}, 760 * mib, false, true},
		{"nothing ran since the last one", Hygiene{Budget: budget}, 990 * mib, true, false},
		{"nothing grew since the last one", Hygiene{Budget: budget, busy: time.Hour, floor: 760 * mib}, 800 * mib, false, false},
		{"it grew since the last one", Hygiene{Budget: budget, busy: time.Hour, floor: 700 * mib}, 760 * mib, false, true},
		{"5 % are spent", Hygiene{Budget: budget, busy: time.Second, cost: 51 * time.Millisecond}, 760 * mib, false, false},
		{"5 % are not spent", Hygiene{Budget: budget, busy: time.Second, cost: 49 * time.Millisecond}, 760 * mib, false, true},
		{"10 % after a good one", Hygiene{Budget: budget, busy: time.Second, cost: 90 * time.Millisecond, freed: 0.2}, 760 * mib, false, true},
		{"10 % when nobody waits", Hygiene{Budget: budget, busy: time.Second, cost: 90 * time.Millisecond}, 760 * mib, true, true},
		{"20 % near the budget", Hygiene{Budget: budget, busy: time.Second, cost: 190 * time.Millisecond}, 960 * mib, false, true},
		{"80 % at the most", Hygiene{Budget: budget, busy: time.Second, cost: 810 * time.Millisecond, freed: 0.5}, 990 * mib, true, false},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.h.Due(c.held, c.idle)) })
	}
}

func text(_ Reason, text string) string { return text }

func TestHygiene_ATrimTellsGarbageFromALeak(t *testing.T) {
	for _, c := range []struct {
		after int64
		want  Reason
	}{{950 * mib, ForLeak}, {700 * mib, ForLeak}, {300 * mib, ""}} {
		h := Hygiene{Budget: 1000 * mib}
		for i := 0; h.Leak == ""; i++ {
			h.Ended(i+1, time.Millisecond, int64(100+10*i)*mib, 0)
		}
		require.True(t, h.Due(950*mib, false))
		why, said := h.Trimmed(950*mib, c.after, time.Hour)
		require.Equal(t, c.want, why)
		require.Equal(t, c.want != "", said != "")
		require.False(t, h.Due(950*mib, false), "and it is not asked again for the same growth")
	}
}

func TestHygiene_TwoPoorTrimsNearTheBudgetAreEnough(t *testing.T) {
	h := Hygiene{Budget: 1000 * mib, first: 100 * mib}
	require.False(t, h.Hard())
	require.Empty(t, text(h.Trimmed(950*mib, 940*mib, time.Millisecond)))
	require.True(t, h.Hard(), "the second one takes more")
	require.Equal(t, "930MiB of 1000MiB are held, and 2 trims in a row gave little back", text(h.Trimmed(950*mib, 930*mib, time.Millisecond)))

	h = Hygiene{Budget: 1000 * mib, first: 100 * mib}
	h.Trimmed(950*mib, 940*mib, time.Millisecond)
	require.Empty(t, text(h.Trimmed(950*mib, 840*mib, time.Millisecond)), "a good one")
	require.Empty(t, text(h.Trimmed(950*mib, 940*mib, time.Millisecond)), "counts anew")
	h = Hygiene{Budget: 1000 * mib, first: 920 * mib}
	for range 5 {
		require.Empty(t, text(h.Trimmed(960*mib, 950*mib, time.Millisecond)), "a new process would hold as much after its first item")
	}
}

func TestHygiene_GivesFewItemsAheadUntilItKnows(t *testing.T) {
	h := Hygiene{Budget: 1000 * mib}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 64} {
		require.Equal(t, want, h.Ahead(100*mib, most))
		require.Equal(t, want, h.ahead)
	}
	require.Equal(t, fewAhead, h.Ahead(760*mib, most))
	require.Equal(t, 1, h.Ahead(910*mib, most))
	require.Equal(t, 2, h.Ahead(100*mib, most))
	for i := range 20 {
		h.Ended(i+1, time.Millisecond, int64(100+10*i)*mib, 0)
	}
	for range 10 {
		h.Ahead(300*mib, most)
	}
	require.InDelta(t, 700/4/10, h.ahead, 2, "a quarter of what is left, at 10 MiB each")
	h = Hygiene{}
	require.Equal(t, most, h.Ahead(100*mib, most))
}

// follow feeds a process's readings and tells at which item it would be recycled, 0 if never.
func follow(items int, held func(i int) int64, peak func(i int) int64) int {
	h := Hygiene{Budget: 1000 * mib}
	for i := range items {
		if h.Ended(i+1, time.Millisecond, held(i), peak(i)); h.Leak != "" {
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
