package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile_NearestRank(t *testing.T) {
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for _, c := range []struct {
		values []int
		p      float64
		want   int
	}{
		{nil, 0.5, 0}, {[]int{7}, 0, 7}, {[]int{7}, 0.99, 7}, {[]int{1, 2}, 0.5, 1}, {[]int{1, 2, 3}, 0.5, 2},
		{[]int{1, 2, 3, 4}, 0.99, 4}, {hundred, 0, 1}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100},
	} {
		require.Equal(t, c.want, percentile(c.values, c.p), "%v %v", len(c.values), c.p)
	}
	require.Equal(t, 3.0, median([]float64{9, 1, 3}))
}

func TestGaps_AreWithinASlot(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	got := gaps([]stamp{ // as results come: in order of items, not of time
		{"a", ms(0), ms(10)}, {"b", ms(5), ms(100)}, {"a", ms(40), ms(50)}, {"a", ms(12), ms(15)}, {"b", ms(200), ms(201)},
	})
	require.Equal(t, []time.Duration{5 * time.Millisecond, 35 * time.Millisecond, 101 * time.Millisecond}, got)
}

func TestGaps_FirstItemsAlone(t *testing.T) {
	got := gaps([]stamp{{"a", 0, 30}, {"b", 10, 20}, {"c", 50, 40}})
	require.Equal(t, []time.Duration{0, 10, 30}, got, "own durations, and none below zero when the clock was set back")
	require.Empty(t, gaps(nil))
}

func TestRow_Fill(t *testing.T) {
	row := Row{Items: 4}
	row.fill([]time.Duration{time.Second, 2 * time.Second, 6 * time.Second}, 8*time.Second)
	require.Equal(t, 0.5, row.Rate)
	require.Equal(t, []float64{1, 3, 2, 6, 8}, []float64{row.Min, row.Mean, row.Median, row.P99, row.Total})
	none := Row{}
	none.fill(nil, 0)
	require.Zero(t, none.Rate)
	require.Zero(t, none.Mean)
}

func TestReport_CompareWithBare(t *testing.T) {
	r := sampleReport()
	for i := range r.Rows {
		r.Rows[i].OfBare = 0
	}
	r.compareWithBare()
	require.InDelta(t, 0.9, r.row("heavy", Persistent, 0).OfBare, 1e-9)
	require.InDelta(t, 0.97, r.row("heavy", Sequential, 0).OfBare, 1e-9, "one slot beside one bare process")
	require.Equal(t, 1.0, r.row("heavy", Bare, 1).OfBare)
	require.Zero(t, r.row("oom", Persistent, 0).OfBare, "bare processes have no budget")
}

func TestRowsToPass_PassesTheBudgetByAHalf(t *testing.T) {
	for _, budget := range []int64{256 << 20, 1 << 30, 4 << 30} {
		rows := int64(rowsToPass(budget))
		kept := float64(rows * rows * 4 * products)
		require.InDelta(t, 1.5, kept/float64(budget), 0.01)
	}
}

func TestBudgetFor_LeavesHalfOfTheDevice(t *testing.T) {
	require.EqualValues(t, budget, budgetFor(0, 8), "unknown memory")
	require.EqualValues(t, budget, budgetFor(80<<30, 4))
	require.EqualValues(t, 512<<20, budgetFor(5<<30, 4))
	require.EqualValues(t, leastBudget, budgetFor(1<<30, 4))
}

func TestSweep_StopsWhenItNoLongerGrows(t *testing.T) {
	require.Equal(t, []int{1}, slotCounts(1))
	require.Equal(t, []int{1, 2}, slotCounts(2))
	require.Equal(t, []int{1, 2, 4, 6}, slotCounts(6))
	require.Zero(t, enough(nil))
	require.Equal(t, 1, enough([]Step{{1, 10}}))
	require.Equal(t, 4, enough([]Step{{1, 10}, {2, 19}, {4, 30}}))
	require.Equal(t, 2, enough([]Step{{1, 10}, {2, 19}, {4, 19.8}}))
	require.Equal(t, 1, enough([]Step{{1, 10}, {2, 9}, {4, 30}}), "what comes after a standstill does not count")
	require.True(t, growing([]Step{{1, 100}, {2, 105}}))
	require.False(t, growing([]Step{{1, 100}, {2, 104.9}}))
}

func TestFigures(t *testing.T) {
	for want, s := range map[string]float64{"0s": 0, "180ns": 180e-9, "18.3µs": 18.34e-6, "250ms": 0.25, "4.21s": 4.2123, "1m23.2s": 83.21} {
		require.Equal(t, want, seconds(s))
	}
	for want, rate := range map[string]float64{"2,554,169": 2554169, "35.6": 35.6, "0.93": 0.93} {
		require.Equal(t, want, figure(rate))
	}
	for want, share := range map[string]float64{"-": 0, "<0.1%": 0.0004, "0.7%": 0.0068, "76%": 0.758, "126%": 1.26} {
		require.Equal(t, want, percent(share))
	}
	for want, ratio := range map[string]float64{"0.02×": 0.021, "12.3×": 12.3, "1,204×": 1204} {
		require.Equal(t, want, times(ratio))
	}
}
