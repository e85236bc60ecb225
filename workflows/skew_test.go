package workflows

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// The simulation adds these times: the workflow hears of a finished chunk after
// roundTrip, and a slot is busy handOver longer than its items take.
const (
	roundTrip = 20 * time.Millisecond
	handOver  = 5 * time.Millisecond
)

// schedule simulates maps on equal slots. The real engine decides; only the time is
// simulated.
type schedule struct {
	maps  []*simulated
	slots int
	// handOut is how long the server takes to hand out a chunk, one after the other.
	handOut time.Duration

	now    time.Duration
	queue  []handed
	free   []time.Duration
	events []event
}

// simulated is a map, with what each of its items takes.
type simulated struct {
	costs  []time.Duration
	begins time.Duration

	e      *engine
	done   []bool
	chunks int
	served int
	// first is when its first chunk ended, end when its last one did.
	first, end time.Duration
}

// handed is a chunk that waits for a slot.
type handed struct {
	owner  *simulated
	piece  contract.Piece
	likely time.Duration
	limit  time.Duration
	at     time.Duration
}

// event is a finished chunk, and when the workflow hears of it.
type event struct {
	at time.Duration
	handed
	result contract.ChunkResult
}

// ahead returns how many items a process holds beside the running one. It imitates
// internal/slot: pace is the time of an item, and ran is how many items of the chunk have
// run.
func ahead(pace time.Duration, ran int64) int64 {
	if pace >= 100*time.Millisecond {
		return 1
	}
	work := min(32*time.Millisecond, max(8*time.Millisecond, time.Duration(ran)*pace/24))
	return int64(max(2, min(8192, 1+work/pace)))
}

// run returns the time at which the last item ended.
func (s *schedule) run(t *testing.T) time.Duration {
	s.free = make([]time.Duration, s.slots)
	server, end := time.Duration(0), time.Duration(0)
	for _, m := range s.maps {
		items := int64(len(m.costs))
		m.e, m.done = newEngine("sim", gpumux.MapInput{Task: "sim", Range: &gpumux.Range{End: items}}, items), make([]bool, items)
		m.e.first().sizer.Likely, m.e.first().sizer.Sparing = s.slots, true
		s.events = append(s.events, event{at: m.begins, handed: handed{owner: m}})
	}
	for {
		for _, m := range s.maps {
			for s.now >= m.begins && len(m.e.first().todo) > 0 && m.e.first().inFlight < m.e.first().sizer.Part() {
				at := m.e.first().todo.First(time.Time{})
				piece := m.e.first().todo.Take(at, m.e.first().sizer.Size(m.e.first().todo[at], m.e.first().todo.Items()))
				m.e.first().inFlight++
				m.chunks++
				s.queue = append(s.queue, handed{m, piece, m.e.first().sizer.Pace(piece), m.e.first().sizer.Limit(piece), s.now})
			}
		}
		// Every slot that is free by then takes a chunk before the workflow hears of the next
		// event.
		for len(s.queue) > 0 {
			slot := slices.Index(s.free, slices.Min(s.free))
			at := max(s.now, s.free[slot], server)
			if len(s.events) > 0 && at > s.events[0].at {
				break
			}
			server = at + s.handOut
			h := s.next()
			busy, half, since := time.Duration(0), time.Duration(0), int64(0)
			var items []int64
			for _, run := range h.piece.Runs {
				for i := run.Start; i < run.End; i++ {
					items = append(items, i)
				}
			}
			next, stop, pace := int64(0), h.piece.Len(), time.Duration(0)
			lately, holds := time.Duration(0), next+1
			for ; next < stop; next++ {
				if h.limit > 0 && stop == h.piece.Len() && busy >= h.limit { // the process still runs what it holds
					stop = min(h.piece.Len(), max(next, holds))
				}
				cost := h.owner.costs[items[next]]
				require.False(t, h.owner.done[items[next]], "item %d runs twice", items[next])
				h.owner.done[items[next]] = true
				busy += cost
				if lately == 0 {
					lately = cost
				}
				lately = max(time.Microsecond, lately+(cost-lately)/4)
				holds = max(holds, next+1+ahead(lately, next))
				if half == 0 && busy >= h.limit/2 {
					half, since = busy, next+1
				}
			}
			if next < h.piece.Len() {
				pace = (busy - half) / time.Duration(next-since)
			}
			ends := at + handOver + busy
			s.free[slot], end = ends, max(end, ends)
			if h.owner.end = max(h.owner.end, ends); h.owner.first == 0 {
				h.owner.first = ends
			}
			s.events = append(s.events, event{ends + roundTrip, h, contract.ChunkResult{
				Covered: next, Pace: gpumux.Duration(pace), Ran: next, Counts: contract.Counts{Succeeded: next}, Busy: gpumux.Duration(handOver + busy), Worker: "w", Slots: s.slots,
				Held: gpumux.Duration(ends - at),
			}})
			slices.SortStableFunc(s.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		}
		if len(s.events) == 0 {
			for _, m := range s.maps {
				require.Empty(t, m.e.first().todo)
				require.NotContains(t, m.done, false)
			}
			return end
		}
		first := s.events[0]
		s.events = s.events[1:]
		s.now = first.at
		e := first.owner.e.first()
		if first.piece.Len() == 0 {
			continue // the map begins
		}
		e.inFlight--
		e.sizer.LearnShare(s.now-first.handed.at, time.Duration(first.result.Held))
		require.NoError(t, e.apply(nil, first.piece, first.piece.Rung, first.likely, first.result))
	}
}

// next takes the next chunk that the server hands out: one of the map that had fewest.
func (s *schedule) next() handed {
	at := 0
	for i, h := range s.queue {
		if h.owner.served < s.queue[at].owner.served {
			at = i
		}
	}
	h := s.queue[at]
	h.owner.served++
	s.queue = slices.Delete(s.queue, at, at+1)
	return h
}

// alone is the schedule of one map.
func alone(slots int, costs []time.Duration) *schedule {
	return &schedule{slots: slots, maps: []*simulated{{costs: costs}}}
}

// distributions make the times of a map's items. The mean is about two units.
var distributions = map[string]func(n int, unit time.Duration, chance *rand.Rand) []time.Duration{
	"uniform": func(n int, unit time.Duration, chance *rand.Rand) []time.Duration {
		return slices.Repeat([]time.Duration{2 * unit}, n)
	},
	"one in a hundred": func(n int, unit time.Duration, chance *rand.Rand) []time.Duration {
		costs := slices.Repeat([]time.Duration{unit}, n)
		for i := range costs {
			if chance.IntN(100) == 0 {
				costs[i] = 100 * unit
			}
		}
		return costs
	},
	"slow at the end": func(n int, unit time.Duration, chance *rand.Rand) []time.Duration {
		costs := slices.Repeat([]time.Duration{unit}, n)
		for i := n - n/100; i < n; i++ {
			costs[i] = 100 * unit
		}
		return costs
	},
	"ever slower": func(n int, unit time.Duration, chance *rand.Rand) []time.Duration {
		costs := make([]time.Duration, n)
		for i := range costs {
			costs[i] = 4 * unit * time.Duration(i) / time.Duration(n)
		}
		return costs
	},
}

// test simulates a map and compares it with the ideal schedule, where no slot ever waits.
func (s *schedule) test(t *testing.T) {
	var sum time.Duration
	costs := s.maps[0].costs
	for _, c := range costs {
		sum += c
	}
	ideal := max(sum/time.Duration(s.slots), slices.Max(costs))
	took := s.run(t)
	t.Logf("%d items: %.1f %% over %s, %d chunks", len(costs), 100*float64(took-ideal)/float64(ideal), ideal, s.maps[0].chunks)
	require.LessOrEqual(t, took, ideal*115/100)
}

// enough returns a number of items that makes the longest item, and the time for
// learning, small beside a slot's share of the work.
func enough(slots int, unit time.Duration) int {
	return max(slots*2000, int(time.Duration(slots)*20*time.Second/(2*unit)))
}

var units = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}

// A map with some very slow items ends at most 15 % later than the ideal schedule.
func TestSizer_SlowItemsCostLittle(t *testing.T) {
	for name, distribution := range distributions {
		for _, unit := range units {
			for _, slots := range []int{1, 8, 32} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, unit, slots), func(t *testing.T) {
					costs := distribution(enough(slots, unit), unit, rand.New(rand.NewPCG(1, uint64(slots))))
					alone(slots, costs).test(t)
				})
			}
		}
	}
}

// All slow items stand together, and no earlier item gave a hint of them. A slot runs
// those that it holds by then; other slots take the rest.
func TestSizer_AStretchOfSlowItemsIsShared(t *testing.T) {
	for name, at := range map[string]func(n int) int{"middle": func(n int) int { return n / 2 }, "end": func(n int) int { return n - n/100 }} {
		for _, unit := range units {
			for _, slots := range []int{1, 8, 32} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, unit, slots), func(t *testing.T) {
					n := enough(slots, unit) / 2
					costs := slices.Repeat([]time.Duration{unit}, n)
					for i := range n / 100 {
						costs[at(n)+i] = 100 * unit
					}
					alone(slots, costs).test(t)
				})
			}
		}
	}
}
