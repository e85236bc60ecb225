package autoslots

import (
	"math"
	"slices"
)

const (
	// gain is the least factor by which more slots must raise the throughput.
	gain = 1.08
	// A row has inRow measurements; after maxRows rows a doubtful comparison is decided.
	inRow, maxRows = 3, 7
	// apart is how many standard errors a clear result is away from doubt; minSpread is
	// the least assumed spread of measurements, because a few may agree by chance.
	apart, minSpread = 2.0, 0.03
	// restFor is the number of measurements between two searches.
	restFor = 1200
	// drift is the change of throughput, up or down, after which the search begins anew.
	drift = 1.4
)

// search finds the smallest number of slots per device with about the most throughput,
// for one task and one goroutine. It doubles the number while that pays, narrows it down,
// rests, and searches again from time to time.
type search struct {
	// bound is the largest number.
	bound int
	// room limits a larger number by the free memory. Default: no limit.
	room func(from, to int) int

	at, trial, now int               // the number in use, the one on trial or 0, and the one that is measured
	low, high      int               // too few, and enough that more bring nothing; 0 where unknown
	left           int               // measurements until the row or the rest ends
	rates          map[int][]float64 // logarithms
	resting        bool
	reference      float64 // the middle rate as the rest began
	logged         int     // the last result that was logged
}

// newSearch begins with the number of slots in use.
func newSearch(from, bound int) *search {
	s := &search{bound: bound, at: min(max(1, from), bound)}
	s.reset()
	return s
}

// reset forgets all measurements, and searches both ways from the number in use.
func (s *search) reset() {
	s.low, s.high, s.resting = 0, 0, false
	s.remeasure()
}

// remeasure drops the trial and measures the number in use anew.
func (s *search) remeasure() {
	s.trial, s.now, s.left = 0, s.at, inRow
	s.rates = map[int][]float64{}
}

// observe records a measurement of the throughput with the present number of slots.
func (s *search) observe(rate float64) {
	if rate <= 0 {
		return
	}
	s.rates[s.now] = append(s.rates[s.now], math.Log(rate))
	switch s.left--; {
	case s.resting && (s.drifted() || s.left == 0):
		s.reset()
	case s.left > 0:
	case s.trial == 0:
		s.choose()
	default:
		s.compare()
	}
}

// drifted reports whether throughput has changed since the rest began.
func (s *search) drifted() bool {
	const recent = 2*inRow - 1
	rates := s.rates[s.at]
	rates = rates[max(0, len(rates)-recent):]
	s.rates[s.at] = rates
	return len(rates) == recent && math.Abs(median(rates)-s.reference) > math.Log(drift)
}

// step is the distance of two numbers that need no comparison.
func (s *search) step() int { return max(1, s.at/4) }

// choose picks the number to try next: a larger one, else a smaller one. It rests when
// neither is worth a trial.
func (s *search) choose() {
	next := s.larger()
	if next == 0 && s.at-s.low > s.step() {
		next = s.low + (s.at-s.low)/2
	}
	rates := s.rates[s.at]
	s.rates = map[int][]float64{s.at: rates[max(0, len(rates)-2*inRow):]}
	s.trial, s.now, s.left = next, next, inRow
	if next == 0 {
		s.resting, s.now, s.left = true, s.at, restFor
		s.reference = median(rates)
	}
}

// larger is a larger number worth trying, or 0.
func (s *search) larger() int {
	want := min(2*s.at, s.bound)
	if s.high > 0 {
		want = s.at + (s.high-s.at)/2
		if s.high-s.at <= s.step() {
			return 0
		}
	}
	if s.room != nil && want > s.at {
		want = s.room(s.at, want)
	}
	if want <= s.at {
		s.high = s.at + 1
		return 0
	}
	return want
}

// compare ends a row of a trial: it decides, or asks for another row.
func (s *search) compare() {
	small, large := s.rates[s.at], s.rates[s.trial]
	if s.trial < s.at {
		small, large = large, small
	}
	above := median(large) - median(small) - math.Log(gain)
	doubt := apart * standardError(small, large)
	if a, t := len(s.rates[s.at]), len(s.rates[s.trial]); math.Abs(above) <= doubt && min(a, t) < maxRows*inRow {
		// The two alternate, so a drift in the items' cost does not look like an effect.
		if a < t {
			s.now = s.at
		} else if t < a {
			s.now = s.trial
		}
		s.left = inRow
		return
	}
	s.decide(above > 0)
}

// decide ends a trial; worth says that the larger of the two numbers is worth it.
func (s *search) decide(worth bool) {
	up := s.trial > s.at
	switch {
	case up && worth:
		s.low, s.at = s.at, s.trial
	case up:
		s.high = s.trial
	case worth:
		s.low = s.trial
	default:
		s.high, s.at = s.at, s.trial
	}
	s.choose()
}

// overflow reduces the number for lack of device memory, and reports whether it could.
func (s *search) overflow() bool {
	switch {
	case s.now > s.at:
		s.decide(false)
	case s.now > 1:
		s.low, s.high, s.at = 0, s.now, s.now/2
		s.resting = false
		s.remeasure()
	default:
		return false
	}
	return true
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// standardError of the difference of two medians, by the median deviation.
func standardError(a, b []float64) float64 {
	var off []float64
	for _, values := range [][]float64{a, b} {
		middle := median(values)
		for _, v := range values {
			off = append(off, math.Abs(v-middle))
		}
	}
	spread := max(minSpread, 1.48*median(off))
	return 1.25 * spread * math.Sqrt(1/float64(len(a))+1/float64(len(b)))
}
