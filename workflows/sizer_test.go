package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// The segments together keep two chunks per slot in flight, for any number of slots. Each
// segment stays far below the server's limit for one workflow.
func TestSizer_SegmentsFillAllSlots(t *testing.T) {
	for slots := 1; slots <= gpumux.MaxWindow/2; slots++ {
		whole := newSizer(gpumux.MapInput{})
		whole.learnSlots(map[string]int{"w": slots})
		part := newSizer(gpumux.MapInput{})
		part.learnSlots(map[string]int{"w": slots})
		part.share = whole.abreast()
		require.GreaterOrEqual(t, part.part()*part.share, 2*slots-part.share, "%d slots", slots)
		require.LessOrEqual(t, part.part(), segmentWindow)
		require.LessOrEqual(t, whole.part(), maxPending, "a map that runs its chunks itself")
		require.LessOrEqual(t, part.share, 64)
	}
	beyond := newSizer(gpumux.MapInput{})
	beyond.learnSlots(map[string]int{"w": 1 << 20})
	require.Equal(t, gpumux.MaxWindow, beyond.whole())
	fixed := newSizer(gpumux.MapInput{Window: 3000})
	require.Equal(t, 12, fixed.abreast())
	require.Equal(t, maxPending, fixed.part())
}
