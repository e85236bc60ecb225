package bench

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// stamp is when a call of the task began and ended, and in which slot or bare process.
type stamp struct {
	Slot  string `json:"slot"`
	Began int64  `json:"began"` // nanoseconds since 1970
	Ended int64  `json:"ended"`
	// Env is the environment of the slot, told by items that warm it up.
	Env map[string]string `json:"env"`
}

// sample is what one piece came to, in seconds; 0 stands for unknown.
type sample struct {
	// rate is items per second in the steady state; 0 where the slots hardly worked at
	// the same time.
	rate float64
	// times are those between the ends of consecutive items of a slot, item their median.
	times []float64
	item  float64
	// perMap is what a map took before its first item and after its last one.
	perMap float64
}

// sampleOf is the sample of a piece. The total of bare processes is 0.
func sampleOf(stamps []stamp, slots int, total time.Duration) (out sample) {
	bySlot := map[string][]stamp{}
	for _, s := range stamps {
		bySlot[s.Slot] = append(bySlot[s.Slot], s)
	}
	first, last := int64(math.MaxInt64), int64(0)
	for _, calls := range bySlot {
		slices.SortFunc(calls, func(a, b stamp) int { return cmp.Compare(a.Ended, b.Ended) })
		first, last = min(first, calls[0].Began), max(last, calls[len(calls)-1].Ended)
		for i := 1; i < len(calls); i++ {
			out.times = append(out.times, float64(calls[i].Ended-calls[i-1].Ended)/1e9)
		}
	}
	out.item = median(out.times)
	if total > 0 && len(stamps) > 0 {
		out.perMap = max(0, total-time.Duration(last-first)).Seconds()
	}
	if len(bySlot) == slots {
		out.rate = steady(bySlot)
	}
	return out
}

// steady is items per second while all slots work, with the parts of the items that lie
// across its borders. It is 0 where that is less than a third of what the slots took.
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
		rate += (done(calls, ended) - done(calls, began)) / time.Duration(ended-began).Seconds()
	}
	return rate
}

// done is the number of items that a slot had done at a time, with the part of the one
// that ran then.
func done(calls []stamp, at int64) float64 {
	i, found := slices.BinarySearchFunc(calls, at, func(s stamp, at int64) int { return cmp.Compare(s.Ended, at) })
	if found || i == 0 || i == len(calls) {
		return float64(i)
	}
	before, after := calls[i-1].Ended, calls[i].Ended
	return float64(i-1) + float64(at-before)/float64(after-before)
}

// Quartiles of repeated measurements.
type Quartiles struct {
	Q1     float64 `json:"q1"`
	Median float64 `json:"median"`
	Q3     float64 `json:"q3"`
	// Count is the number of measurements.
	Count int `json:"count"`
}

// quartiles of the measurements that are not 0.
func quartiles(values []float64) Quartiles {
	sorted := slices.Sorted(slices.Values(values))
	sorted = slices.DeleteFunc(sorted, func(value float64) bool { return value == 0 })
	return Quartiles{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75), len(sorted)}
}

// known reports whether the quartiles say anything: with six rounds and equal ways one is
// above the other in 7 % of comparisons, with nine in 3 %.
func (q Quartiles) known() bool { return q.Count >= quickRounds }

// above reports whether q lies above other, apart from it.
func (q Quartiles) above(other Quartiles) bool { return q.known() && other.known() && q.Q1 > other.Q3 }

// ratios are the quotients of measurements made in turn; 0 where one was not measured.
func ratios(values, base []float64) []float64 {
	quotients := make([]float64, len(values))
	for i := range values {
		if base[i] > 0 {
			quotients[i] = values[i] / base[i]
		}
	}
	return quotients
}

// quantile lies between the two values next to it; 0 without values.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := p * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// median is the middle of the values that are not 0.
func median(values []float64) float64 { return quartiles(values).Median }
