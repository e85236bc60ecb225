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
	next.Slots, next.heard = map[string]int{}, map[string]int{}
	next.Resume(contract.StageCarry{Pace: s.Carry(), Slots: s.Slots})
	require.Equal(t, s.Size(contract.Piece{}, 1000), next.Size(contract.Piece{}, 1000), "segments know it too")

	fixed := newSizer(gpumux.MapInput{Chunk: 10})
	fixed.Learn(contract.ChunkResult{Worker: "w", Slots: 1, Concurrent: 256})
	require.Equal(t, 40, fixed.Part(), "384 items and a chunk more")
}

// A worker that was killed is forgotten when those that live have finished enough without
// it, and counts again when it tells.
func TestSizer_ForgetsWorkersThatAreGone(t *testing.T) {
	s := newSizer(gpumux.MapInput{})
	chunk := func(worker string) contract.ChunkResult {
		return contract.ChunkResult{Worker: worker, Slots: 3, Ran: 1, Busy: gpumux.Duration(time.Second)}
	}
	s.Learn(chunk("killed"))
	for range silentWindows * 12 {
		s.Learn(chunk("alive"))
	}
	require.Equal(t, 6, s.count())
	for range 2 {
		s.Learn(chunk("alive"))
	}
	require.Equal(t, 3, s.count())
	s.Learn(chunk("killed"))
	require.Equal(t, 6, s.count())
}
