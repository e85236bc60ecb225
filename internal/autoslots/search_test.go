package autoslots

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// curve is the throughput for a number of slots.
type curve func(slots int) float64

func saturatedAt(most int) curve { return func(n int) float64 { return 100 * float64(min(n, most)) } }

func peaked(at int, fall float64) curve {
	return func(n int) float64 { return 100 * (float64(min(n, at)) - fall*float64(max(0, n-at))) }
}

func roofed(n int) float64 { return 1000 * (1 - math.Exp(-float64(n)/3)) } // ever less for one more

// feed measures n times with so much noise and returns the numbers of slots that were in
// use.
func feed(s *search, c curve, noise float64, seed uint64, n int) []int {
	random := rand.New(rand.NewPCG(seed, 1))
	var used []int
	for range n {
		used = append(used, s.now)
		s.observe(max(1, c(s.now)*(1+noise*random.NormFloat64())))
	}
	return used
}

func TestSearch_FindsTheBestNumber(t *testing.T) {
	for name, c := range map[string]struct {
		curve       curve
		bound       int
		least, most int
	}{
		"saturated by one":         {saturatedAt(1), 16, 1, 1},
		"saturated by two":         {saturatedAt(2), 16, 2, 2},
		"saturated by five":        {saturatedAt(5), 16, 5, 5},
		"linear to eight":          {saturatedAt(8), 32, 8, 9},
		"linear to the bound":      {saturatedAt(99), 16, 16, 16},
		"linear to an odd bound":   {saturatedAt(99), 11, 11, 11},
		"best at three, then less": {peaked(3, 0.4), 16, 3, 3},
		"more is always worse":     {func(n int) float64 { return 100 / float64(n) }, 16, 1, 1},
		"ever less for one more":   {roofed, 64, 5, 14},
		"room for one":             {saturatedAt(8), 1, 1, 1},
	} {
		for _, noise := range []float64{0, 0.02, 0.10} {
			t.Run(name, func(t *testing.T) {
				good, seeds := 0, 40
				for seed := range seeds {
					s := newSearch(1, c.bound)
					feed(s, c.curve, noise, uint64(seed), 400)
					// With noise a neighbour is as good: what counts is the throughput that is left.
					if best := s.at; best >= c.least && best <= c.most ||
						noise >= 0.1 && c.curve(best) >= 0.9*c.curve(c.least) && best <= 2*c.most {
						good++
					}
				}
				if noise < 0.1 {
					require.Equal(t, seeds, good)
				} else {
					require.GreaterOrEqual(t, good, seeds*9/10)
				}
			})
		}
	}
}

func TestSearch_BeginsWithWhatIsInUse(t *testing.T) {
	for from, best := range map[int]int{8: 1, 12: 3, 2: 8, 16: 16} {
		s := newSearch(from, 16)
		feed(s, saturatedAt(best), 0.02, 7, 400)
		require.Equal(t, best, s.at, "from %d", from)
	}
}

func TestSearch_SettlesSoonAndThenTriesLittle(t *testing.T) {
	s := newSearch(1, 16)
	used := feed(s, saturatedAt(1), 0.03, 3, 3000)
	other := 0
	for _, n := range used[60:] {
		require.LessOrEqual(t, n, 2)
		if n != 1 {
			other++
		}
	}
	require.Greater(t, other, 0, "it looks again")
	require.Less(t, other, 3000/20)
	require.Equal(t, 1, s.at)
}

func TestSearch_NoiseDoesNotMakeItOscillate(t *testing.T) {
	for seed := range uint64(10) {
		s := newSearch(1, 32)
		feed(s, saturatedAt(8), 0.10, seed, 600)
		changes, last := 0, s.at
		random := rand.New(rand.NewPCG(seed, 2))
		for range 4000 {
			s.observe(max(1, saturatedAt(8)(s.now)*(1+0.10*random.NormFloat64())))
			if s.at != last {
				changes, last = changes+1, s.at
			}
		}
		require.LessOrEqual(t, changes, 6)
		require.InDelta(t, 9, s.at, 3)
	}
}

func TestSearch_OddMeasurementsDoNotCount(t *testing.T) {
	s := newSearch(1, 16)
	for i := range 400 {
		rate := saturatedAt(4)(s.now)
		if i%7 == 3 {
			rate /= 20 // the machine was busy with something else
		}
		s.observe(rate)
	}
	require.Equal(t, 4, s.at)
}

func TestSearch_FollowsItemsThatChange(t *testing.T) {
	s := newSearch(1, 16)
	feed(s, saturatedAt(8), 0.02, 1, 300)
	require.Equal(t, 8, s.at)
	heavy := func(int) float64 { return 30 }
	feed(s, heavy, 0.02, 2, 300)
	require.Equal(t, 1, s.at, "one slot does as much")
	feed(s, saturatedAt(8), 0.02, 3, 300)
	require.Equal(t, 8, s.at)
}

func TestSearch_SlowDriftIsNotTakenForTheSlots(t *testing.T) {
	s, i := newSearch(1, 16), 0
	feed(s, func(n int) float64 { i++; return saturatedAt(1)(n) * math.Pow(1.01, float64(i)) }, 0.02, 1, 60)
	require.LessOrEqual(t, s.at, 2)
}

func TestSearch_MemoryThatDoesNotDo(t *testing.T) {
	s := newSearch(1, 16)
	for range 400 {
		if s.now > 5 {
			require.True(t, s.overflow())
			continue
		}
		s.observe(saturatedAt(99)(s.now))
	}
	require.Equal(t, 5, s.at)
	require.True(t, s.overflow(), "items have grown")
	require.Equal(t, 2, s.at)
	for s.at > 1 {
		require.True(t, s.overflow())
	}
	require.False(t, s.overflow(), "one is the least")
}

func TestSearch_RoomLimitsMore(t *testing.T) {
	s := newSearch(1, 16)
	s.room = func(_, to int) int { return min(to, 6) }
	for _, n := range feed(s, saturatedAt(99), 0.02, 1, 400) {
		require.LessOrEqual(t, n, 6)
	}
	require.Equal(t, 6, s.at)
}
