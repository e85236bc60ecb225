package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile_LiesBetweenNeighbours(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		p, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0, 7}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1.5}, {[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4, 5}, 0.25, 2}, {[]float64{1, 2, 3, 4, 5}, 0.75, 4}, {[]float64{1, 2, 3, 4, 5}, 1, 5}, {[]float64{0, 10}, 0.99, 9.9},
	} {
		require.InDelta(t, c.want, quantile(c.values, c.p), 1e-9, "%v %v", c.values, c.p)
	}
	require.Equal(t, 3.0, median([]float64{9, 1, 3}))
}

// The ranks of the usual tables for the 95 % interval of a median.
func TestIntervalRank(t *testing.T) {
	for n, want := range map[int]int{1: 1, 5: 1, 6: 1, 8: 1, 9: 2, 12: 3, 15: 4, 20: 6, 30: 10, 50: 18, 100: 40} {
		require.Equal(t, want, intervalRank(n), n)
	}
}

func TestSpread(t *testing.T) {
	require.Equal(t, Spread{}, spread(nil))
	require.Equal(t, Spread{Median: 5, Q1: 3, Q3: 7, Low: 2, High: 8, Count: 9}, spread([]float64{9, 1, 5, 3, 7, 2, 8, 4, 6}))
	require.True(t, spread([]float64{0.975, 0.98, 1, 1, 1.02, 1.025}).narrow())
	require.False(t, spread([]float64{0.96, 0.98, 1, 1, 1.02, 1.03}).narrow())
	require.False(t, spread([]float64{1, 1, 1, 1, 1}).narrow(), "five are too few to tell")
	require.False(t, Spread{}.narrow())
}

func TestOver_PairsOfARound(t *testing.T) {
	require.Equal(t, []float64{0.5, 3}, over([]float64{1, 5, 3, 0}, []float64{2, 0, 1, 4}), "what is 0 was not measured")
}

// at are the calls of a slot that end at these milliseconds, each begun when the one before ended.
func at(slot string, ends ...int64) (calls []stamp) {
	const ms = int64(time.Millisecond)
	before := ends[0] - 1
	for _, end := range ends {
		calls = append(calls, stamp{slot, before * ms, end * ms})
		before = end
	}
	return calls
}

// What lies before the slots all work and after they do is no part of the steady state, whatever it takes.
func TestSampleOf_SteadyState(t *testing.T) {
	for name, c := range map[string]struct {
		stamps []stamp
		slots  int
		want   float64
	}{
		"OneSlot":         {at("a", 100, 110, 120, 130, 140), 1, 100},
		"Two":             {slices.Concat(at("a", 100, 110, 120, 130), at("b", 100, 105, 110, 115, 120, 125, 130)), 2, 300},
		"OneBeginsLate":   {slices.Concat(at("a", 100, 110, 120, 130, 140, 150), at("b", 120, 130, 140, 150)), 2, 200},
		"OneEndsEarly":    {slices.Concat(at("a", 100, 110, 120, 130, 140), at("b", 100, 110, 120, 130)), 2, 200},
		"PartsOfItems":    {slices.Concat(at("a", 100, 140, 180), at("b", 110, 130, 150, 170)), 2, 75},
		"OneAfterAnother": {slices.Concat(at("a", 100, 110, 120), at("b", 130, 140, 150)), 2, 0},
		"HardlyTogether":  {slices.Concat(at("a", 100, 110, 120, 130), at("b", 125, 130, 135, 160)), 2, 0},
		"ASlotIdle":       {at("a", 100, 110, 120), 2, 0},
		"OneItem":         {at("a", 100), 1, 0},
	} {
		t.Run(name, func(t *testing.T) { require.InDelta(t, c.want, sampleOf(c.stamps, c.slots, 0).rate, 1e-6) })
	}
}

func TestSampleOf_TimesAndFixedCost(t *testing.T) {
	calls := slices.Concat(at("b", 5, 6), at("a", 10, 30, 25)) // as results come: in order of items, not of time
	got := sampleOf(calls, 2, 100*time.Millisecond)
	require.ElementsMatch(t, []time.Duration{15 * time.Millisecond, 5 * time.Millisecond, time.Millisecond}, got.times)
	require.Equal(t, 74*time.Millisecond, got.perMap, "100 ms without those from 4 to 30")
	require.Zero(t, sampleOf(calls, 2, 0).perMap, "bare processes have none")
}

func TestRow_Fill(t *testing.T) {
	row := Row{}
	row.fill([]sample{
		{rate: 10, times: []time.Duration{4 * time.Second, time.Second}, perMap: time.Second},
		{rate: 0, times: []time.Duration{2 * time.Second}},
		{rate: 20, times: []time.Duration{3 * time.Second, 5 * time.Second}, perMap: 3 * time.Second},
	})
	require.Equal(t, Quartiles{Min: 1, Q1: 2, Median: 3, Q3: 4, P99: 4.96}, row.Item)
	require.Equal(t, []float64{15, 2, 5}, []float64{row.Rate.Median, row.PerMap.Median, float64(row.Items)})
	none := Row{}
	none.fill(nil)
	require.Zero(t, none)
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

func TestFigures(t *testing.T) {
	for want, s := range map[string]float64{"0s": 0, "180ns": 180e-9, "18.3µs": 18.34e-6, "250ms": 0.25, "4.21s": 4.2123, "1m23.2s": 83.21} {
		require.Equal(t, want, seconds(s))
	}
	for want, rate := range map[string]float64{"2.55M": 2554169, "18.3k": 18272, "9,123": 9123, "35.6": 35.6, "0.93": 0.93} {
		require.Equal(t, want, figure(rate))
	}
	for want, share := range map[string]float64{"-": 0, "<0.001%": 0.000004, "0.68%": 0.0068, "76%": 0.758, "126%": 1.26, "38,690×": 38690.3} {
		require.Equal(t, want, percent(share))
	}
	require.Equal(t, "5.55-6.23ms", between("5.55ms", "6.23ms"))
	require.Equal(t, "950µs-1.02ms", between("950µs", "1.02ms"))
	require.Equal(t, "93% ±2%", Spread{Median: 0.93, Low: 0.91, High: 0.95, Count: 6}.share())
	for want, ratio := range map[string]float64{"0.02×": 0.021, "12.3×": 12.3, "1,204×": 1204} {
		require.Equal(t, want, times(ratio))
	}
}
