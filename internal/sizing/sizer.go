// Package sizing decides how many items a chunk has, how long it may take, and how many
// chunks are in flight.
//
// It owns what a map learns from finished chunks. It is pure: it never asks a clock or a
// server, so that a replay decides the same.
package sizing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// A chunk is half of a slot's share of what is left, so that all slots end together, but
	// at most longest, so that a paused map soon stands still.
	longest = 10 * time.Second
	// Toward the end a chunk does not shrink below shortest, or perSlot for each slot, up to
	// mostShort: a small Temporal server hands out some 150 chunks a second.
	shortest  = 50 * time.Millisecond
	perSlot   = 7 * time.Millisecond
	mostShort = time.Second
	// growth bounds a chunk by the largest finished one: the first items may be unlike
	// others.
	growth = 8
	// firstSlots is the expected number before a worker has told it. Until then the window
	// doubles up to widest while nothing finishes, first after firstWait.
	firstSlots = 4
	firstWait  = time.Second
	widest     = 256
	// LeastAbreast is the least number of segments at once, segmentWindow the most chunks in
	// flight of one, half of what it runs: so each has its slots full for most of its life.
	LeastAbreast  = 2
	segmentWindow = 250
	// LeastWindow keeps a queue short even behind a single slot.
	LeastWindow = 4
	// mostPending is the most chunks in flight of a workflow; the server refuses over 2,000.
	mostPending = 1000
	// mostPause bounds the pause before another try, unless the first one is longer.
	mostPause = time.Minute
	// A chunk hands back what it has not begun after Slack times the expected time, but at
	// least leastLimit, and at most mostLate over it.
	Slack      = 2
	leastLimit = 200 * time.Millisecond
	// behindLimit is for the chunks behind the first ones, while no pace is known.
	behindLimit = 800 * time.Millisecond
	mostLate    = 1500 * time.Millisecond
)

// Sizer decides how many items the next chunk has and how many chunks are in flight.
type Sizer struct {
	fixedChunk int64
	// Fixed is the window that people asked for, or 0.
	Fixed int
	// PerItem is what an item takes, Largest the most items of a finished chunk.
	PerItem time.Duration
	Largest int64
	// Slots are those of each worker, Seen is their sum.
	Slots map[string]int
	Seen  int
	// Likely is the expected number of slots before a chunk has told of any. Widened is how
	// often the window has doubled since.
	Likely, Widened int
	// guessed is how many chunks were handed out before one had finished.
	guessed int
	// Share is how many workflows fill the map's window together; 0 means this one alone.
	Share int
	// Beyond is how many items wait elsewhere.
	Beyond int64
}

// New begins with what a map's input says.
func New(in gpumux.MapInput) Sizer {
	return Sizer{fixedChunk: int64(in.Chunk), Fixed: in.Window, Slots: map[string]int{}}
}

// Size is the number of items of the next chunk of a piece when left items are not yet
// handed out.
func (s *Sizer) Size(piece contract.Piece, left int64) int64 {
	if s.fixedChunk > 0 {
		return s.fixedChunk
	}
	perItem, slots := s.Pace(piece), int64(max(1, s.count()))
	size := min((left+s.Beyond)/(2*slots), gpumux.MaxChunk)
	if s.Largest == 0 {
		return max(1, size/2) // nobody knows what items take; the limit hands back what is too much
	}
	size = min(size, s.Largest*growth)
	if perItem > 0 {
		size = min(size, int64(longest/perItem))
	}
	if piece.Pace > 0 { // slower than others, who knows for how long
		size = min(size, piece.Len()/(2*slots), int64(mostLate/perItem))
	}
	if perItem > 0 {
		least := min(max(shortest, time.Duration(slots)*perSlot), mostShort)
		size = max(size, min(int64(least/perItem), s.Largest*growth, gpumux.MaxChunk))
	}
	return max(1, size)
}

// Pace is the expected time of an item of a piece.
func (s *Sizer) Pace(piece contract.Piece) time.Duration {
	return cmp.Or(time.Duration(piece.Pace), s.PerItem)
}

// Limit is the time after which a chunk takes no further item, because its items are
// slower than others and other slots should have the rest. 0 means none. It is called
// once per chunk that is handed out.
func (s *Sizer) Limit(chunk contract.Piece) time.Duration {
	items := chunk.Len()
	if s.fixedChunk > 0 || items == 1 {
		return 0
	}
	likely := time.Duration(items) * s.Pace(chunk)
	if s.Largest == 0 {
		if s.guessed++; s.guessed > s.count() {
			return behindLimit
		}
	}
	return max(leastLimit, min(Slack*likely, likely+mostLate))
}

// Whole is the number of chunks that the map should have in flight: two per slot, so that
// a slot finds its next chunk waiting.
func (s *Sizer) Whole() int {
	if s.Fixed > 0 {
		return s.Fixed
	}
	return min(max(LeastWindow, 2*s.count()), gpumux.MaxWindow)
}

// count is how many slots there are, as far as is known.
func (s *Sizer) count() int {
	if s.Seen > 0 {
		return s.Seen
	}
	return min(cmp.Or(s.Likely, firstSlots), mostPending) << s.Widened
}

// Wait is how long to wait for a finished chunk before the window is widened; 0 means for
// ever.
func (s *Sizer) Wait() time.Duration {
	if s.Fixed > 0 || s.Seen > 0 || s.Likely > 0 || s.Whole() >= widest {
		return 0
	}
	return firstWait << s.Widened
}

// Part is the number of chunks that this workflow should have in flight.
func (s *Sizer) Part() int { return min(mostPending, max(1, s.Whole()/max(1, s.Share))) }

// Abreast is how many segments the map needs at once, so that one fills the slots while
// another ends.
func (s *Sizer) Abreast() int {
	return max(LeastAbreast, (s.Whole()+segmentWindow-1)/segmentWindow)
}

// LearnSlots learns how many slots workers have.
//
//workflowcheck:ignore
func (s *Sizer) LearnSlots(slots map[string]int) {
	for _, worker := range slices.Sorted(maps.Keys(slots)) {
		s.Seen += slots[worker] - s.Slots[worker]
		s.Slots[worker] = slots[worker]
	}
}

// Learn learns from a finished chunk. Newer chunks weigh as much as all older ones
// together.
func (s *Sizer) Learn(result contract.ChunkResult) {
	if result.Worker != "" {
		s.LearnSlots(map[string]int{result.Worker: result.Slots})
	}
	if result.Ran == 0 {
		return
	}
	cost := time.Duration(result.Busy) / time.Duration(result.Ran)
	if s.Largest == 0 {
		s.PerItem = cost
	} else {
		s.PerItem = (s.PerItem + cost) / 2
	}
	s.Largest = max(s.Largest, result.Ran)
}

// Pause is how long an item waits that has raised so many times after the first one: it
// doubles with each.
func Pause(first time.Duration, more int) time.Duration {
	pause := first
	for try := 0; try < more && pause < mostPause; try++ {
		pause = min(2*pause, max(first, mostPause))
	}
	return pause
}
