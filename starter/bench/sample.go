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
}

// sample is what one piece came to.
type sample struct {
	// rate is items per second in the steady state; 0 where the slots hardly worked at the same time.
	rate float64
	// times are those between the ends of consecutive items of a slot.
	times []time.Duration
	// perMap is what a map took before its first item and after its last one.
	perMap time.Duration
}

// sampleOf is the sample of a piece from what so many slots did. Nothing else is known of bare processes: their total is 0.
func sampleOf(stamps []stamp, slots int, total time.Duration) sample {
	bySlot := map[string][]stamp{}
	for _, s := range stamps {
		bySlot[s.Slot] = append(bySlot[s.Slot], s)
	}
	var out sample
	first, last := int64(math.MaxInt64), int64(0)
	for _, calls := range bySlot {
		slices.SortFunc(calls, func(a, b stamp) int { return cmp.Compare(a.Ended, b.Ended) })
		first, last = min(first, calls[0].Began), max(last, calls[len(calls)-1].Ended)
		for i := 1; i < len(calls); i++ {
			out.times = append(out.times, time.Duration(calls[i].Ended-calls[i-1].Ended))
		}
	}
	if total > 0 && len(stamps) > 0 {
		out.perMap = max(0, total-time.Duration(last-first))
	}
	if len(bySlot) == slots {
		out.rate = steady(bySlot)
	}
	return out
}

// steady is items per second while all slots work, with the parts of the items that lie across its borders. It is 0 where that is less
// than a third of what the slots took.
func steady(bySlot map[string][]stamp) float64 {
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
	items := 0.0
	for _, calls := range bySlot {
		items += done(calls, ended) - done(calls, began)
	}
	return items / time.Duration(ended-began).Seconds()
}

// done is how many items a slot had done at a time, with the part of the one that ran then.
func done(calls []stamp, at int64) float64 {
	i, found := slices.BinarySearchFunc(calls, at, func(s stamp, at int64) int { return cmp.Compare(s.Ended, at) })
	if found || i == 0 || i == len(calls) {
		return float64(i)
	}
	before, after := calls[i-1].Ended, calls[i].Ended
	return float64(i-1) + float64(at-before)/float64(after-before)
}

// Spread is what repeated measurements came to.
type Spread struct {
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	// Low and High hold the median with a confidence of at least 95 %; with fewer than six measurements they are the extremes, and say less.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Count is the number of measurements.
	Count int `json:"count"`
}

// leastRounds is how many measurements an interval of 95 % takes.
const leastRounds = 6

// spread of some measurements.
func spread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return Spread{}
	}
	outer := intervalRank(n)
	return Spread{Median: quantile(sorted, 0.5), Q1: quantile(sorted, 0.25), Q3: quantile(sorted, 0.75),
		Low: sorted[outer-1], High: sorted[n-outer], Count: n}
}

// intervalRank is the rank from below and from above, counted from 1, between which the median of n measurements lies with 95 %: fewer
// than so many of them fall on one side with a chance of a fortieth, as heads in n throws.
func intervalRank(n int) int {
	chance, below := math.Pow(0.5, float64(n)), 0.0
	rank := 0
	for below+chance <= 0.025 {
		below += chance
		chance *= float64(n-rank) / float64(rank+1)
		rank++
	}
	return max(1, rank)
}

// within is half of the interval as a share of the median.
func (s Spread) within() float64 {
	if s.Median == 0 {
		return math.Inf(1)
	}
	return (s.High - s.Low) / 2 / s.Median
}

// known reports whether the interval says anything of the median.
func (s Spread) known() bool { return s.Count >= leastRounds }

// narrow reports whether the median is known well enough.
func (s Spread) narrow() bool {
	const enough = 0.03
	return s.known() && s.within() <= enough
}

// clear reports whether s lies above another one, whatever the noise does.
func (s Spread) clear(other Spread) bool { return s.known() && other.known() && s.Low > other.High }

// over are the quotients of measurements that were made in turn; where one of the two is 0 there is none.
func over(values, base []float64) (ratios []float64) {
	for i, value := range values {
		if value > 0 && base[i] > 0 {
			ratios = append(ratios, value/base[i])
		}
	}
	return ratios
}

// quantile lies between the two values next to it; 0 without values.
func quantile[T ~float64 | ~int64](sorted []T, p float64) T {
	if len(sorted) == 0 {
		return 0
	}
	at := p * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + T((at-float64(below))*float64(sorted[above]-sorted[below]))
}

// median is the middle value.
func median[T ~float64 | ~int64](values []T) T {
	return quantile(slices.Sorted(slices.Values(values)), 0.5)
}
