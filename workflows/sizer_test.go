package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
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

// A task that takes many items at once gets chunks that fill it, however long its items
// take; toward the end a slot gets its share at once.
func TestSizer_ChunksFillABatch(t *testing.T) {
	s := newSizer(gpumux.MapInput{})
	slow := contract.ChunkResult{Worker: "w", Slots: 2, Ran: 128, Busy: gpumux.Duration(128 * time.Second)}
	s.learn(slow)
	require.EqualValues(t, 10, s.size(contract.Piece{}, 10_000), "10 s of work")
	slow.Batch = 128
	s.learn(slow)
	require.EqualValues(t, 256, s.size(contract.Piece{}, 10_000))
	require.EqualValues(t, 50, s.size(contract.Piece{}, 99), "half of what is left")
	require.EqualValues(t, 1, s.size(contract.Piece{}, 1))
	require.EqualValues(t, 4, newSizerOf(1, 128).size(contract.Piece{}, 8), "no more than eight times what has finished")
}

func newSizerOf(ran, batch int64) *sizer {
	s := newSizer(gpumux.MapInput{})
	s.learn(contract.ChunkResult{Worker: "w", Slots: 2, Ran: ran, Busy: gpumux.Duration(time.Minute), Batch: batch})
	return &s
}
