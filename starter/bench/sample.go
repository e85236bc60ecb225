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

// gaps are the times between the ends of consecutive items of one slot, over all slots. The first item of a slot has no
// predecessor; when no slot ran two items, the calls' own durations stand in.
func gaps(stamps []stamp) []time.Duration {
	bySlot := map[string][]int64{}
	for _, s := range stamps {
		bySlot[s.Slot] = append(bySlot[s.Slot], s.Ended)
	}
	var times []time.Duration
	for _, ends := range bySlot {
		slices.Sort(ends)
		for i := 1; i < len(ends); i++ {
			times = append(times, time.Duration(ends[i]-ends[i-1]))
		}
	}
	if len(times) == 0 {
		for _, s := range stamps {
			times = append(times, time.Duration(max(0, s.Ended-s.Began)))
		}
	}
	slices.Sort(times)
	return times
}

// percentile is the smallest value that at least the share p of the sorted values does not exceed; 0 without values.
func percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the middle value, or the lower of the two.
func median[T cmp.Ordered](values []T) T {
	return percentile(slices.Sorted(slices.Values(values)), 0.5)
}

// mean is the sum over the number of times; 0 without any.
func mean(times []time.Duration) time.Duration {
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	return sum / time.Duration(max(1, len(times)))
}
