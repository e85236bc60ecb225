package cli

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// rounds of a stage, where its limit allows; the quartiles of fewer than enough say
	// nothing.
	rounds, enoughRounds = 9, 6
	// minItems of a client give a piece a steady state. Fresh processes take fewer,
	// since each can take seconds to start; bare ones take more trivial items than a
	// chunk has.
	minItems, minFreshItems = 4, 2
	maxItems, maxBareItems  = gpumux.MaxChunk, 250_000
)

// lane is one way that takes turns, with its samples, round by round.
type lane struct {
	clients      int
	items        int // of the next piece, per client
	least, limit int
	samples      []benchSample
	run          func(ctx context.Context, items int) (benchSample, error)
}

// takeTurns warms the lanes up and runs the rounds, as many as the limit allows, and goes
// on beyond it until one round has measured every lane.
func takeTurns(ctx context.Context, lanes []*lane, limit time.Duration) error {
	until := time.Now().Add(limit)
	length := min(max(limit/20, 100*time.Millisecond), 500*time.Millisecond)
	for _, l := range lanes {
		l.items = l.least
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
		turns := slices.Clone(lanes)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, l := range turns {
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		complete = complete || !slices.ContainsFunc(lanes, func(l *lane) bool { return l.samples[round].rate == 0 })
	}
	return nil
}

// turn runs a piece and sizes the next one by it.
func (l *lane) turn(ctx context.Context, length time.Duration) error {
	began := time.Now()
	one, err := l.run(ctx, l.items)
	if err != nil {
		return err
	}
	l.samples = append(l.samples, one)
	items := one.rate / float64(l.clients) * length.Seconds()
	if one.rate == 0 {
		// The slots hardly worked at the same time. A longer piece helps, up to four
		// times its length.
		items = float64(l.items) * min(8, max(1, 4*length.Seconds()/time.Since(began).Seconds()))
	}
	l.items = min(max(int(items), l.least), l.limit)
	return nil
}

// result compares a lane with one bare process alone and with as many bare processes,
// where those ran, round by round.
func (l *lane) result(row benchRow, alone, beside *lane) benchRow {
	var times []float64
	for _, s := range l.samples {
		times = append(times, s.times...)
	}
	row.Items, row.Item = len(times), quartilesOf(times)
	row.Rate = quartilesOf(l.figures(rateOf))
	row.OfUnshared = l.share(alone, rateOf)
	row.Latency = l.share(alone, func(s benchSample) float64 { return quartilesOf(s.times).Median })
	if beside != nil {
		row.OfBare = l.share(beside, rateOf)
	}
	return row
}

func rateOf(s benchSample) float64 { return s.rate }

func (l *lane) figures(figure func(benchSample) float64) (values []float64) {
	for _, s := range l.samples {
		values = append(values, figure(s))
	}
	return values
}

// share divides a figure of each round by that of another lane.
func (l *lane) share(base *lane, figure func(benchSample) float64) quartiles {
	var shares []float64
	for i, value := range l.figures(figure) {
		if by := figure(base.samples[i]); by > 0 {
			shares = append(shares, value/by)
		}
	}
	return quartilesOf(shares)
}

// stamp is when a call of the task began and ended, and in which slot or bare process.
type stamp struct {
	Slot  string `json:"slot"`
	Began int64  `json:"began"` // nanoseconds since 1970
	Ended int64  `json:"ended"`
	// Env is the environment of the slot; items that warm it up have it.
	Env map[string]string `json:"env"`
}

// benchSample is the result of one piece, in seconds.
type benchSample struct {
	// rate is items per second in the steady state; 0 where the slots hardly worked at
	// the same time.
	rate float64
	// times are those between the ends of consecutive items of a slot.
	times []float64
}

func benchSampleOf(stamps []stamp, slots int) (out benchSample) {
	bySlot := map[string][]stamp{}
	for _, s := range stamps {
		bySlot[s.Slot] = append(bySlot[s.Slot], s)
	}
	for _, calls := range bySlot {
		slices.SortFunc(calls, func(a, b stamp) int { return cmp.Compare(a.Ended, b.Ended) })
		for i := 1; i < len(calls); i++ {
			out.times = append(out.times, float64(calls[i].Ended-calls[i-1].Ended)/1e9)
		}
	}
	if len(bySlot) == slots {
		out.rate = steady(bySlot)
	}
	return out
}

// steady is items per second while all slots work. Items that lie across the borders of
// that time count in part. It is 0 where that time is under a third of the whole.
func steady(bySlot map[string][]stamp) (rate float64) {
	began, ended := int64(0), int64(math.MaxInt64)
	earliest, latest := int64(math.MaxInt64), int64(0)
	for _, calls := range bySlot {
		first, last := calls[0].Ended, calls[len(calls)-1].Ended
		began, ended = max(began, first), min(ended, last)
		earliest, latest = min(earliest, first), max(latest, last)
	}
	if ended <= began || 3*(ended-began) < latest-earliest {
		return 0
	}
	for _, calls := range bySlot {
		rate += (finished(calls, ended) - finished(calls, began)) / time.Duration(ended-began).Seconds()
	}
	return rate
}

// finished is the number of items that a slot had finished at a time, with the part of
// the one that ran then.
func finished(calls []stamp, at int64) float64 {
	i, found := slices.BinarySearchFunc(calls, at, func(s stamp, at int64) int { return cmp.Compare(s.Ended, at) })
	if found || i == 0 || i == len(calls) {
		return float64(i)
	}
	before, after := calls[i-1].Ended, calls[i].Ended
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

// quartilesOf of the measurements that are not 0.
func quartilesOf(values []float64) quartiles {
	sorted := slices.Sorted(slices.Values(values))
	sorted = slices.DeleteFunc(sorted, func(value float64) bool { return value == 0 })
	at := func(p float64) float64 { // between the two values next to it
		if len(sorted) == 0 {
			return 0
		}
		below, part := math.Modf(p * float64(len(sorted)-1))
		i := int(below)
		return sorted[i] + part*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
	}
	return quartiles{at(0.25), at(0.5), at(0.75), len(sorted)}
}

// above reports whether q lies above other, apart from it. Of equal ways one is above the
// other in 7 % of comparisons with six rounds, and in 3 % with nine.
func (q quartiles) above(other quartiles) bool {
	return min(q.Count, other.Count) >= enoughRounds && q.Q1 > other.Q3
}
