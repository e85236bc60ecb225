package workflows

import (
	"cmp"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// A chunk aims for an eighth of the work that is left for a slot, at least target, so that starting it costs little, and at most
	// longest, so that a map soon stands still when it is paused.
	target  = 1500 * time.Millisecond
	longest = 10 * time.Second
	// shortest is the work below which a chunk does not shrink toward the end: handing it out would cost more than waiting.
	shortest = 50 * time.Millisecond
	// growth bounds how much larger a chunk may be than the largest one that has finished, because the first items may not
	// be like the others.
	growth = 8
	// firstWindow is the window before any worker has told how many slots it has.
	firstWindow = 8
	// leastWindow keeps a queue short even behind a single slot.
	leastWindow = 4
	// mostPending is the most chunks that one workflow has in flight; the server refuses more than 2,000 activities.
	mostPending = 1000
	// patience is how many times as long as expected a chunk may take before it hands back what it has not begun, and at
	// least leastLimit.
	patience   = 2
	leastLimit = 200 * time.Millisecond
)

// sizer decides how many items the next chunk has and how many chunks are in flight, from what finished chunks told.
type sizer struct {
	fixedChunk  int64
	fixedWindow int
	perItem     time.Duration
	largest     int64
	slots       map[string]int
	seen        int
	// share is how many workflows fill the map's window together; 0 means this one alone.
	share int
	// beyond is how many items wait elsewhere.
	beyond int64
}

func newSizer(in gpumux.MapInput) sizer {
	return sizer{fixedChunk: int64(in.Chunk), fixedWindow: in.Window, slots: map[string]int{}}
}

// size is the number of items of the next chunk of a piece when left items are not yet handed out.
func (s *sizer) size(piece gpumux.Piece, left int64) int64 {
	if s.fixedChunk > 0 {
		return s.fixedChunk
	}
	size, perItem, slots := int64(1), s.pace(piece), int64(max(s.seen, 1))
	if s.largest > 0 {
		size = s.largest * growth
		if perItem > 0 {
			share := (left + s.beyond) / (8 * slots)
			size = min(size, max(int64(target/perItem), min(share, int64(longest/perItem))))
		}
	}
	// Toward the end the chunks shrink, so that no slot waits long for the last one. So do those of a piece that is slower
	// than others.
	size = min(size, (left+s.beyond)/(2*slots), gpumux.MaxChunk)
	if piece.Pace > 0 {
		size = min(size, piece.Len()/(2*slots))
	}
	if perItem > 0 && s.largest > 0 {
		size = max(size, min(int64(shortest/perItem), s.largest*growth, gpumux.MaxChunk))
	}
	return max(1, size)
}

// pace is the time that an item of a piece is likely to take.
func (s *sizer) pace(piece gpumux.Piece) time.Duration {
	return cmp.Or(time.Duration(piece.Pace), s.perItem)
}

// limit is the time after which a chunk takes no further item: its items are slower than others were, and other slots should
// have the rest. 0 means none.
func (s *sizer) limit(chunk gpumux.Piece) time.Duration {
	items := chunk.Len()
	if s.fixedChunk > 0 || items == 1 {
		return 0
	}
	return max(leastLimit, min(patience*time.Duration(items)*s.pace(chunk), patience*longest))
}

// whole is the number of chunks that the map should have in flight: two per slot, so that a slot finds its next chunk waiting.
func (s *sizer) whole() int {
	switch {
	case s.fixedWindow > 0:
		return s.fixedWindow
	case s.seen == 0:
		return firstWindow
	}
	return min(max(leastWindow, 2*s.seen), gpumux.MaxWindow)
}

// window is this workflow's part of them.
func (s *sizer) window() int { return min(mostPending, max(1, s.whole()/max(1, s.share))) }

// abreast is how many segments the map needs at once, so that one fills the slots while another runs dry.
func (s *sizer) abreast() int {
	return max(leastAbreast, (s.whole()+segmentWindow-1)/segmentWindow)
}

// meet takes in how many slots workers have.
func (s *sizer) meet(slots map[string]int) {
	for _, worker := range sorted(slots) {
		s.seen += slots[worker] - s.slots[worker]
		s.slots[worker] = slots[worker]
	}
}

// learn takes in a finished chunk. Newer chunks weigh as much as all older ones together.
func (s *sizer) learn(result gpumux.ChunkResult) {
	if result.Worker != "" {
		s.meet(map[string]int{result.Worker: result.Slots})
	}
	if result.Ran == 0 {
		return
	}
	cost := time.Duration(result.Busy) / time.Duration(result.Ran)
	if s.largest == 0 {
		s.perItem = cost
	} else {
		s.perItem = (s.perItem + cost) / 2
	}
	s.largest = max(s.largest, result.Ran)
}
