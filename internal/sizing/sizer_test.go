package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// The segments together keep two chunks per slot in flight, for any number of slots. Each segment stays far below the server's
// limit for one workflow.
func TestSizer_SegmentsFillAllSlots(t *testing.T) {
	for slots := 1; slots <= gpumux.MaxWindow/2; slots++ {
		whole := New(gpumux.MapInput{})
		whole.LearnSlots(map[string]int{"w": slots})
		part := New(gpumux.MapInput{})
		part.LearnSlots(map[string]int{"w": slots})
		part.Share = whole.Abreast()
		require.GreaterOrEqual(t, part.Part()*part.Share, 2*slots-part.Share, "%d slots", slots)
		require.LessOrEqual(t, part.Part(), segmentWindow)
		require.LessOrEqual(t, whole.Part(), mostPending, "a map that runs its chunks itself")
		require.LessOrEqual(t, part.Share, 64)
	}
	beyond := New(gpumux.MapInput{})
	beyond.LearnSlots(map[string]int{"w": 1 << 20})
	require.Equal(t, gpumux.MaxWindow, beyond.Whole())
	fixed := New(gpumux.MapInput{Window: 3000})
	require.Equal(t, 12, fixed.Abreast())
	require.Equal(t, mostPending, fixed.Part())
}
