package cli

import (
	"context"
	"math"
	"slices"
	"time"
)

const (
	rounds = 9 // of a stage, where its limit allows
	// minItems of a client give a piece a steady state. Bare processes take more trivial
	// items than a chunk has.
	minItems, maxBareItems = 4, 250_000
)

// lane is one way that takes turns, with its samples, round by round.
type lane struct {
	clients, maxItems int // at most so many items per client
	items             int // of the next piece, per client
	samples           []benchSample
	run               func(ctx context.Context, items int) (benchSample, error)
}

// takeTurns warms the lanes up and runs the rounds, as many as the limit allows, and goes
// on beyond it until one round has measured every lane: only such a round has shares.
func takeTurns(ctx context.Context, lanes []*lane, limit time.Duration) error {
	until := time.Now().Add(limit)
	length := min(max(limit/20, 100*time.Millisecond), 500*time.Millisecond)
	for _, l := range lanes {
		l.items = minItems
		for before := 0; l.items >= 2*before && (before == 0 || time.Now().Before(until)); {
			before = l.items
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		l.samples = nil
	}
	complete := false
	for round := 0; round < rounds && (time.Now().Before(until) || !complete); round++ {
		measured := true
		for _, l := range lanes {
			if err := l.turn(ctx, length); err != nil {
				return err
			}
			measured = measured && l.samples[round].rate > 0
		}
		complete = complete || measured
		slices.Reverse(lanes)
	}
	return nil
}

// turn runs a piece and sizes the next one by it.
func (l *lane) turn(ctx context.Context, length time.Duration) error {
	began := time.Now()
	got, err := l.run(ctx, l.items)
	if err != nil {
		return err
	}
	l.samples = append(l.samples, got)
	items := got.rate / float64(l.clients) * length.Seconds()
	if got.rate == 0 {
		// The slots hardly worked at the same time. A longer piece helps, up to four
		// times its length.
		items = float64(l.items) * min(8, max(1, 4*length.Seconds()/time.Since(began).Seconds()))
	}
	l.items = min(max(int(items), minItems), l.maxItems)
	return nil
}

func (l *lane) result(row benchRow) benchRow {
	var times, rates []float64
	for _, s := range l.samples {
		times, rates = append(times, s.times...), append(rates, s.rate)
	}
	row.Items, row.Item, row.Rate = len(times), quartilesOf(times), quartilesOf(rates)
	return row
}

// share compares the throughput with another lane's, round by round.
func (l *lane) share(base *lane) quartiles {
	var shares []float64
	for i, s := range l.samples {
		if by := base.samples[i].rate; by > 0 {
			shares = append(shares, s.rate/by)
		}
	}
	return quartilesOf(shares)
}

type benchSample struct {
	// rate is items per second in the steady state; 0 where the slots hardly worked at
	// the same time.
	rate float64
	// times are those between the ends of consecutive items of a slot.
	times []float64
}

// benchSampleOf measures by when each slot ended its items, in nanoseconds since 1970.
func benchSampleOf(ends [][]int64, slots int) (out benchSample) {
	began, ended := int64(0), int64(math.MaxInt64) // while all slots work
	earliest, latest := int64(math.MaxInt64), int64(0)
	for _, slot := range ends {
		slices.Sort(slot)
		for i := 1; i < len(slot); i++ {
			out.times = append(out.times, float64(slot[i]-slot[i-1])/1e9)
		}
		first, last := slot[0], slot[len(slot)-1]
		began, ended = max(began, first), min(ended, last)
		earliest, latest = min(earliest, first), max(latest, last)
	}
	if len(ends) < slots || ended <= began || 3*(ended-began) < latest-earliest {
		return out
	}
	for _, slot := range ends {
		out.rate += (finished(slot, ended) - finished(slot, began)) / time.Duration(ended-began).Seconds()
	}
	return out
}

// finished is the number of items that a slot had finished at a time, with the part of
// the one that ran then.
func finished(ends []int64, at int64) float64 {
	i, found := slices.BinarySearch(ends, at)
	if found || i == 0 || i == len(ends) {
		return float64(i)
	}
	before, after := ends[i-1], ends[i]
	return float64(i-1) + float64(at-before)/float64(after-before)
}

// quartiles of repeated measurements.
type quartiles struct {
	Q1     float64 `json:"q1"`
	Median float64 `json:"median"`
	Q3     float64 `json:"q3"`
	// Count is the number of measurements.
	Count int `json:"count"`
}

// quartilesOf the measurements that are not 0.
func quartilesOf(values []float64) quartiles {
	values = slices.DeleteFunc(slices.Sorted(slices.Values(values)), func(value float64) bool { return value == 0 })
	n := len(values)
	if n == 0 {
		return quartiles{}
	}
	return quartiles{values[(n-1)/4], values[n/2], values[n-1-(n-1)/4], n}
}
