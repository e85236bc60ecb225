package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was not measured counts for nothing.
func TestQuartiles(t *testing.T) {
	require.Equal(t, quartiles{}, quartilesOf(nil))
	require.Equal(t, quartiles{Q1: 3, Median: 5, Q3: 7, Count: 9}, quartilesOf([]float64{9, 1, 5, 0, 3, 7, 2, 8, 0, 4, 6}))
	require.Equal(t, quartiles{Q1: 2, Median: 4, Q3: 5, Count: 6}, quartilesOf([]float64{1, 2, 3, 4, 5, 6}))
	require.Equal(t, quartiles{Q1: 7, Median: 7, Q3: 7, Count: 1}, quartilesOf([]float64{7}))
}

func TestQuartiles_Above(t *testing.T) {
	low, high := quartilesOf([]float64{1, 1, 1.1, 1.2, 1.3, 1.4}), quartilesOf([]float64{1.31, 1.31, 1.31, 1.32, 1.33, 1.34})
	require.True(t, high.above(low))
	require.False(t, low.above(high))
	require.False(t, high.above(quartilesOf([]float64{1, 1, 1, 1.4, 1.4, 1.4})), "they overlap")
	require.False(t, high.above(quartilesOf([]float64{1, 1, 1, 1, 1})), "five are too few to tell")
	require.False(t, quartilesOf([]float64{9, 9, 9, 9, 9}).above(low))
}

// endsOf are the ends of a slot's items in milliseconds.
func endsOf(milliseconds ...int64) (ends []int64) {
	for _, end := range milliseconds {
		ends = append(ends, end*int64(time.Millisecond))
	}
	return ends
}

// What lies before the slots all work and after they do is no part of the steady state,
// whatever it takes.
func TestSampleOf_SteadyState(t *testing.T) {
	for name, c := range map[string]struct {
		ends  [][]int64
		slots int
		want  float64
	}{
		"OneSlot":         {[][]int64{endsOf(100, 110, 120, 130, 140)}, 1, 100},
		"Two":             {[][]int64{endsOf(100, 110, 120, 130), endsOf(100, 105, 110, 115, 120, 125, 130)}, 2, 300},
		"OneBeginsLate":   {[][]int64{endsOf(100, 110, 120, 130, 140, 150), endsOf(120, 130, 140, 150)}, 2, 200},
		"PartsOfItems":    {[][]int64{endsOf(100, 140, 180), endsOf(110, 130, 150, 170)}, 2, 75},
		"OneAfterAnother": {[][]int64{endsOf(100, 110, 120), endsOf(130, 140, 150)}, 2, 0},
		"HardlyTogether":  {[][]int64{endsOf(100, 110, 120, 130), endsOf(125, 130, 135, 160)}, 2, 0},
		"ASlotIdle":       {[][]int64{endsOf(100, 110, 120)}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) { require.InDelta(t, c.want, benchSampleOf(c.ends, c.slots).rate, 1e-6) })
	}
	// As results come: in order of items, not of time.
	require.ElementsMatch(t, []float64{0.015, 0.005, 0.001}, benchSampleOf([][]int64{endsOf(5, 6), endsOf(10, 30, 25)}, 2).times)
}

func TestLane_Result(t *testing.T) {
	alone := &lane{samples: []benchSample{{rate: 20, times: []float64{0.5}}, {rate: 10, times: []float64{1}}, {rate: 40, times: []float64{1}}}}
	slots := &lane{samples: []benchSample{{rate: 10, times: []float64{4, 1}}, {times: []float64{2}}, {rate: 20, times: []float64{3, 5}}}}
	row := slots.result(benchRow{Way: wayPersistent, Clients: 2}, alone, alone)
	require.Equal(t, benchRow{Way: wayPersistent, Clients: 2, Items: 5, Rate: quartiles{10, 20, 20, 2}, OfUnshared: quartiles{0.5, 0.5, 0.5, 2},
		OfBare: quartiles{0.5, 0.5, 0.5, 2}, Item: quartiles{2, 3, 4, 5}, Latency: quartiles{2, 5, 8, 3}}, row)
	require.Zero(t, slots.result(benchRow{}, alone, nil).OfBare)
}

// Pieces grow until they take their time, and the rounds turn around.
func TestTakeTurns(t *testing.T) {
	var order string
	var pieces []int
	way := func(name string, rate float64) *lane {
		return &lane{clients: 2, minItems: minItems, maxItems: maxItems, run: func(_ context.Context, items int) (benchSample, error) {
			order += name
			pieces = append(pieces, items)
			if items < 100 {
				return benchSample{}, nil // the slots miss each other
			}
			return benchSample{rate: rate}, nil
		}}
	}
	x, y := way("x", 4000), way("y", 1e9)
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Hour))
	require.Equal(t, "xxxxyyyy"+"xyyxxyyxxyyxxyyxxy", order)
	require.Equal(t, []int{4, 32, 256, 1000, 4, 32, 256, maxItems}, pieces[:8])
	require.Len(t, x.samples, rounds, "the pieces that warm up do not count")

	order = ""
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Nanosecond))
	require.Equal(t, "xyxyyx", order, "until there is a round in which both were measured, whatever the limit is")

	order, y.run = "", func(context.Context, int) (benchSample, error) { return benchSample{}, nil }
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Nanosecond))
	require.Equal(t, strings.Repeat("x", 1+rounds), order, "all rounds, while a way was not measured")
}

func TestFigures(t *testing.T) {
	for want, s := range map[string]float64{"0s": 0, "180ns": 180e-9, "18.3µs": 18.34e-6, "250ms": 0.25, "4.21s": 4.2123, "83.2s": 83.21} {
		require.Equal(t, want, seconds(s))
	}
	for want, rate := range map[string]float64{"2.55M": 2554169, "18.3k": 18272, "9.12k": 9123, "35.6": 35.6, "0.93": 0.93, "1k": 999.9} {
		require.Equal(t, want, figure(rate))
	}
	for want, share := range map[string]float64{"0%": 0, "0.0004%": 0.000004, "0.68%": 0.0068, "75.8%": 0.758, "126%": 1.26, "38.7k×": 38690.3} {
		require.Equal(t, want, percent(share))
	}
	require.Equal(t, "91%-95%", quartiles{Q1: 0.91, Q3: 0.95}.between(percent))
}
