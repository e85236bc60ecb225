package sizer

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
		whole := New(gpumux.MapInput{})
		whole.learnSlots(map[string]int{"w": slots})
		part := New(gpumux.MapInput{})
		part.learnSlots(map[string]int{"w": slots})
		part.Share = whole.Abreast()
		require.GreaterOrEqual(t, part.Part()*part.Share, 2*slots-part.Share, "%d slots", slots)
		require.LessOrEqual(t, part.Part(), segmentWindow)
		require.LessOrEqual(t, whole.Part(), maxPending, "a map that runs its chunks itself")
		require.LessOrEqual(t, part.Share, 64)
	}
	beyond := New(gpumux.MapInput{})
	beyond.learnSlots(map[string]int{"w": 1 << 20})
	require.Equal(t, gpumux.MaxWindow, beyond.Whole())
	fixed := New(gpumux.MapInput{Window: 3000})
	require.Equal(t, 12, fixed.Abreast())
	require.Equal(t, maxPending, fixed.Part())
}

// A task that takes many items at once gets chunks that fill it, however long its items
// take; toward the end a slot gets its share at once.
func TestSizer_ChunksFillABatch(t *testing.T) {
	s := New(gpumux.MapInput{})
	slow := contract.ChunkResult{Worker: "w", Slots: 2, Ran: 128, Busy: gpumux.Duration(128 * time.Second)}
	s.Learn(slow)
	require.EqualValues(t, 10, s.Size(contract.Piece{}, 10_000), "10 s of work")
	slow.Batch = 128
	s.Learn(slow)
	require.EqualValues(t, 256, s.Size(contract.Piece{}, 10_000))
	require.EqualValues(t, 50, s.Size(contract.Piece{}, 99), "half of what is left")
	require.EqualValues(t, 1, s.Size(contract.Piece{}, 1))
	require.EqualValues(t, 4, sizerOf(1, 128).Size(contract.Piece{}, 8), "no more than eight times what has finished")
}

func sizerOf(ran, batch int64) *Sizer {
	s := New(gpumux.MapInput{})
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 2, Ran: ran, Busy: gpumux.Duration(time.Minute), Batch: batch})
	return &s
}
