package workflows

import (
	"cmp"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// A chunk is half of a slot's share of what is left, so that all slots end together. It takes at most longest, so that a paused
	// map soon stands still.
	longest = 10 * time.Second
	// Toward the end a chunk does not shrink below shortest, or perSlot for each slot, up to mostShort: handing it out would cost
	// more than waiting. A small Temporal server hands out some 150 chunks a second.
	shortest  = 50 * time.Millisecond
	perSlot   = 7 * time.Millisecond
	mostShort = time.Second
	// growth bounds how much larger a chunk may be than the largest one that has finished, because the first items may not
	// be like the others.
	growth = 8
	// firstSlots is how many slots a map expects before a worker has told it. Until then the window doubles each time that nothing
	// has finished for a while, firstWait at first: the items may take hours. It grows up to widest, so that a map which waits for
	// others does not fill the queue.
	firstSlots = 4
	firstWait  = time.Second
	widest     = 256
	// leastWindow keeps a queue short even behind a single slot.
	leastWindow = 4
	// mostPending is the most chunks that one workflow has in flight; the server refuses more than 2,000 activities.
	mostPending = 1000
	// A chunk hands back what it has not begun when it has taken patience times as long as expected, but at least leastLimit, and at
	// most mostLate longer than expected.
	patience   = 2
	leastLimit = 200 * time.Millisecond
	mostLate   = 1500 * time.Millisecond
)

// sizer decides how many items the next chunk has and how many chunks are in flight. It learns from finished chunks.
type sizer struct {
	fixedChunk  int64
	fixedWindow int
	perItem     time.Duration
	largest     int64
	slots       map[string]int
	seen        int
	// likely is the expected number of slots before a chunk has told of any. widened is how often the window has doubled since.
	likely, widened int
	// share is how many workflows fill the map's window together; 0 means this one alone.
	share int
	// beyond is how many items wait elsewhere.
	beyond int64
}

func newSizer(in gpumux.MapInput) sizer {
	return sizer{fixedChunk: int64(in.Chunk), fixedWindow: in.Window, slots: map[string]int{}}
}

// size is the number of items of the next chunk of a piece when left items are not yet handed out.
func (s *sizer) size(piece contract.Piece, left int64) int64 {
	if s.fixedChunk > 0 {
		return s.fixedChunk
	}
	perItem, slots := s.pace(piece), int64(max(1, s.count()))
	size := min((left+s.beyond)/(2*slots), gpumux.MaxChunk)
	if s.largest == 0 {
		return max(1, size/2) // nobody knows what items take; the limit hands back what is too much
	}
	size = min(size, s.largest*growth)
	if perItem > 0 {
		size = min(size, int64(longest/perItem))
	}
	if piece.Pace > 0 { // slower than others, who knows for how long
		size = min(size, piece.Len()/(2*slots), int64(mostLate/perItem))
	}
	if perItem > 0 {
		least := min(max(shortest, time.Duration(slots)*perSlot), mostShort)
		size = max(size, min(int64(least/perItem), s.largest*growth, gpumux.MaxChunk))
	}
	return max(1, size)
}

// pace is the expected time of an item of a piece.
func (s *sizer) pace(piece contract.Piece) time.Duration {
	return cmp.Or(time.Duration(piece.Pace), s.perItem)
}

// limit is the time after which a chunk takes no further item, because its items are slower than others and other slots should have
// the rest. 0 means none.
func (s *sizer) limit(chunk contract.Piece) time.Duration {
	items := chunk.Len()
	if s.fixedChunk > 0 || items == 1 {
		return 0
	}
	likely := time.Duration(items) * s.pace(chunk)
	return max(leastLimit, min(patience*likely, likely+mostLate))
}

// whole is the number of chunks that the map should have in flight: two per slot, so that a slot finds its next chunk waiting.
func (s *sizer) whole() int {
	if s.fixedWindow > 0 {
		return s.fixedWindow
	}
	return min(max(leastWindow, 2*s.count()), gpumux.MaxWindow)
}

// count is how many slots there are, as far as is known.
func (s *sizer) count() int {
	if s.seen > 0 {
		return s.seen
	}
	return min(cmp.Or(s.likely, firstSlots), mostPending) << s.widened
}

// wait is how long to wait for a finished chunk before the window is widened; 0 means for ever.
func (s *sizer) wait() time.Duration {
	if s.fixedWindow > 0 || s.seen > 0 || s.likely > 0 || s.whole() >= widest {
		return 0
	}
	return firstWait << s.widened
}

// window is the number of chunks that this workflow should have in flight.
func (s *sizer) window() int { return min(mostPending, max(1, s.whole()/max(1, s.share))) }

// abreast is how many segments the map needs at once, so that one fills the slots while another ends.
func (s *sizer) abreast() int {
	return max(leastAbreast, (s.whole()+segmentWindow-1)/segmentWindow)
}

// learnSlots learns how many slots workers have.
func (s *sizer) learnSlots(slots map[string]int) {
	for _, worker := range sortedKeys(slots) {
		s.seen += slots[worker] - s.slots[worker]
		s.slots[worker] = slots[worker]
	}
}

// learn learns from a finished chunk. Newer chunks weigh as much as all older ones together.
func (s *sizer) learn(result contract.ChunkResult) {
	if result.Worker != "" {
		s.learnSlots(map[string]int{result.Worker: result.Slots})
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
