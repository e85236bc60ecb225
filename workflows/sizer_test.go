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
		part.Share = whole.Abreast()
		require.GreaterOrEqual(t, part.Part()*part.Share, 2*slots-part.Share, "%d slots", slots)
		require.LessOrEqual(t, part.Part(), segmentWindow)
		require.LessOrEqual(t, whole.Part(), maxInFlight, "a map that runs its chunks itself")
		require.LessOrEqual(t, part.Share, 64)
	}
	beyond := newSizer(gpumux.MapInput{})
	beyond.learnSlots(map[string]int{"w": 1 << 20})
	require.Equal(t, gpumux.MaxWindow, beyond.Whole())
	fixed := newSizer(gpumux.MapInput{Window: 3000})
	require.Equal(t, 12, fixed.Abreast())
	require.Equal(t, maxInFlight, fixed.Part())
}

// A task that takes many items at once gets chunks that fill it, however long its items
// take; toward the end a slot gets its share at once.
func TestSizer_ChunksFillABatch(t *testing.T) {
	s := newSizer(gpumux.MapInput{})
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

// What a slot takes at a time decides before anything else is known.
func TestSizer_ChunksFillASlotFromTheFirstOn(t *testing.T) {
	s := newSizer(gpumux.MapInput{})
	s.Likely = 2
	require.False(t, s.Informed)
	require.EqualValues(t, 15, s.Size(contract.Piece{}, 120))
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 2, Batch: 64})
	require.True(t, s.Informed)
	require.EqualValues(t, 64, s.Together())
	require.EqualValues(t, 128, s.Size(contract.Piece{}, 400), "two micro-batches")
	require.EqualValues(t, 64, s.Size(contract.Piece{}, 200), "whole ones")
	require.EqualValues(t, 60, s.Size(contract.Piece{}, 120), "a slot's share")
	s.Inline = true
	require.EqualValues(t, 64, s.Size(contract.Piece{}, 400), "nobody knows what its results weigh")
}

// Where items run at the same time a slot has several chunks, which fill it together.
func TestSizer_ChunksOfAConcurrentTask(t *testing.T) {
	s := newSizer(gpumux.MapInput{})
	s.Sparing = true
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 1, Concurrent: 256})
	require.EqualValues(t, 256, s.Size(contract.Piece{}, 600))
	require.EqualValues(t, 88, s.Size(contract.Piece{}, 88), "all, at once")
	require.Zero(t, s.Limit(contract.Piece{Work: contract.Whole(256)}), "all begin at once")
	require.Equal(t, 4, s.Part(), "though nothing has finished")
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 4, Concurrent: 256})
	require.EqualValues(t, 150, s.Size(contract.Piece{}, 600))
	require.EqualValues(t, 64, s.Size(contract.Piece{}, 88), "a quarter of a slot at least")

	// Items of 2 s, 256 at a time, are 8 ms of a slot each.
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 4, Concurrent: 256, Ran: 256, Busy: gpumux.Duration(2 * time.Second)})
	require.Equal(t, 3500*time.Millisecond, s.Limit(contract.Piece{Work: contract.Whole(256)}), "now a slow chunk can be told")
	require.Equal(t, 16, s.Part())
	for range 100 {
		s.LearnShare(2*time.Second, 2*time.Second)
	}
	require.Equal(t, 4, s.share(), "chunks side by side in a slot have one slot")
	require.EqualValues(t, 256, s.Size(contract.Piece{}, 100_000), "though a second of work would be less")

	var next sizer
	next.Slots = map[string]int{}
	next.Resume(contract.Carry{Pace: s.Carry(), Slots: s.Slots})
	require.Equal(t, s.Size(contract.Piece{}, 1000), next.Size(contract.Piece{}, 1000), "segments know it too")

	fixed := newSizer(gpumux.MapInput{Chunk: 10})
	fixed.Learn(contract.ChunkResult{Worker: "w", Slots: 1, Concurrent: 256})
	require.Equal(t, 40, fixed.Part(), "384 items and a chunk more")
}

func sizerOf(ran, batch int64) *sizer {
	s := newSizer(gpumux.MapInput{})
	s.Learn(contract.ChunkResult{Worker: "w", Slots: 2, Ran: ran, Busy: gpumux.Duration(time.Minute), Batch: batch})
	return &s
}
