package workflows

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// several is so many equal maps of items of 50 ms.
func several(maps, items int) (all []*simulated) {
	for range maps {
		all = append(all, &simulated{costs: slices.Repeat([]time.Duration{50 * time.Millisecond}, items)})
	}
	return all
}

// idealOf is the time in which slots that never wait run all items of maps.
func idealOf(maps []*simulated, slots int) (sum time.Duration) {
	for _, m := range maps {
		for _, cost := range m.costs {
			sum += cost
		}
	}
	return sum / time.Duration(slots)
}

// Each map cuts chunks of its own share of the slots, so that a server that is slow to
// hand them out does not hold all of them up.
func TestSizer_MapsThatShareTheSlots(t *testing.T) {
	const slots, items = 6, 60
	for _, c := range []struct {
		maps    int
		handOut time.Duration
		chunks  int
	}{{1, 0, 45}, {5, 5 * time.Millisecond, 30}, {20, 5 * time.Millisecond, 16}, {20, 25 * time.Millisecond, 14}} {
		t.Run(fmt.Sprintf("%d/%s", c.maps, c.handOut), func(t *testing.T) {
			s := &schedule{slots: slots, handOut: c.handOut, maps: several(c.maps, items)}
			took, ideal, chunks := s.run(t), idealOf(s.maps, slots), 0
			for _, m := range s.maps {
				chunks += m.chunks
			}
			t.Logf("%s in %d chunks per map, ideal %s", took, chunks/c.maps, ideal)
			require.LessOrEqual(t, took, ideal*115/100)
			require.LessOrEqual(t, chunks/c.maps, c.chunks)
		})
	}
}
