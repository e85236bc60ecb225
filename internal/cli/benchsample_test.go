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

// endsOf are the ends of a slot's items in milliseconds.
func endsOf(milliseconds ...int64) (ends []int64) {
	for _, end := range milliseconds {
		ends = append(ends, end*int64(time.Millisecond))
	}
	return ends
}

// What lies before the slots all work and after they do is no part of the steady state,
// whatever it takes.
func TestRateOf_SteadyState(t *testing.T) {
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
		t.Run(name, func(t *testing.T) { require.InDelta(t, c.want, rateOf(c.ends, c.slots), 1e-6) })
	}
}

func TestLane_TurnsAndShares(t *testing.T) {
	pieces := [][][]int64{{endsOf(5, 6), endsOf(10, 30, 25)}, {endsOf(10, 20, 30), endsOf(10, 20, 30)}}
	slots := &lane{clients: 2, maxItems: 10, run: func(context.Context, int) ([][]int64, error) {
		piece := pieces[0]
		pieces = pieces[1:]
		return piece, nil
	}}
	for range 2 {
		require.NoError(t, slots.turn(t.Context(), time.Second))
	}
	require.Equal(t, []float64{0, 200}, slots.rates)
	// As results come: in order of items, not of time.
	require.ElementsMatch(t, []float64{0.015, 0.005, 0.001, 0.01, 0.01, 0.01, 0.01}, slots.times)
	require.Equal(t, quartiles{0.5, 0.5, 0.5, 1}, slots.share(&lane{rates: []float64{100, 400}}))
	require.Equal(t, quartiles{}, slots.share(&lane{rates: []float64{100, 0}}))
}

// Pieces grow until they take their time, and the rounds turn around.
func TestTakeTurns(t *testing.T) {
	var order string
	var pieces []int
	way := func(name string, rate float64) *lane {
		return &lane{clients: 2, maxItems: 10_000, run: func(_ context.Context, items int) ([][]int64, error) {
			order += name
			pieces = append(pieces, items)
			if items < 100 {
				return nil, nil // the slots miss each other
			}
			step := int64(2e9 / rate)
			return [][]int64{{0, step, 2 * step}, {0, step, 2 * step}}, nil
		}}
	}
	x, y := way("x", 4000), way("y", 1e9)
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Hour))
	require.Equal(t, "xxxxyyyy"+"xyyxxyyxxyyxxyyxxy", order)
	require.Equal(t, []int{4, 32, 256, 1000, 4, 32, 256, 10_000}, pieces[:8])
	require.Len(t, x.rates, rounds, "the pieces that warm up do not count")

	order = ""
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Nanosecond))
	require.Equal(t, "xyxyyx", order, "until there is a round in which both were measured, whatever the limit is")

	order, y.run = "", func(context.Context, int) ([][]int64, error) { return nil, nil }
	require.NoError(t, takeTurns(t.Context(), []*lane{x, y}, time.Nanosecond))
	require.Equal(t, strings.Repeat("x", 1+rounds), order, "all rounds, while a way was not measured")
}
