package workflows

import (
	"cmp"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// A chunk is half of a slot's share of what is left, so that all slots end together, but
	// at most longestPerSlot for each slot, within minLongest and longestChunk: other maps
	// wait behind it for a slot, and the server then hands out 50 chunks a second.
	longestChunk   = 10 * time.Second
	longestPerSlot = 20 * time.Millisecond
	minLongest     = time.Second
	// shortLongest takes its place where the next stage would wait for the end of the chunk.
	shortLongest = 100 * time.Millisecond
	// firstSoon bounds a chunk that the next stage waits for while no pace is known.
	firstSoon = 4
	// Toward the end a chunk does not shrink below shortestChunk, or shortestPerSlot for
	// each slot, up to maxShortest: a small server hands out some 150 chunks a second. The
	// smaller the map's share of the slots, the longer its shortest chunk: while other maps
	// have the slots, none is idle at its end.
	shortestChunk   = 50 * time.Millisecond
	shortestPerSlot = 7 * time.Millisecond
	maxShortest     = time.Second
	// A chunk of a task that takes many items in one call has at least minBatches times as
	// many, as far as the slot's share has them: it begins and ends with few under way.
	minBatches = 2
	// maxGrowth bounds a chunk by the largest finished one: the first items may be unlike
	// others.
	maxGrowth = 8
	// firstSlots is the expected number before a worker has told it. Until then the window
	// doubles up to widest while nothing finishes, first after firstWait.
	firstSlots = 4
	firstWait  = time.Second
	widest     = 256
	// minAbreast segments run at once, more with many slots. segmentWindow bounds one's
	// chunks in flight by half of its chunks, so that its slots are full for most of its
	// life.
	minAbreast    = 2
	segmentWindow = 250
	// minWindow keeps a queue short even behind a single slot.
	minWindow = 4
	// silentWindows of chunks finish before a silent worker is forgotten.
	silentWindows = 4
	// maxInFlight is the most chunks in flight of a workflow; the server refuses over 2,000.
	maxInFlight = 1000
	// maxPause bounds the pause before another try, unless the first one is longer.
	maxPause = time.Minute
	// A chunk hands back items not begun after slack times the expected time, but at least
	// minLimit, and at most maxLate over it.
	slack    = 2
	minLimit = 200 * time.Millisecond
	// behindLimit is for the chunks behind the first ones, while no pace is known.
	behindLimit = 800 * time.Millisecond
	maxLate     = 1500 * time.Millisecond
)

// sizer decides how a map is cut: how many items the next chunk has, for how long it may
// take items, and how many chunks are in flight. It never asks a clock: the same calls
// give the same answers, as a replay needs.
type sizer struct {
	fixedChunk int64
	// Fixed is the window that people asked for, or 0.
	Fixed int
	// PerItem is the time of an item, Largest the most items of a finished chunk.
	PerItem time.Duration
	Largest int64
	// batch is the most items that the task takes in one call, concurrent how many it runs
	// at the same time. Both are 0 for a task that takes one after the other, and until
	// Informed.
	batch, concurrent int64
	// Informed says that a worker has told them.
	Informed bool
	// Inline says that all results travel in the history.
	Inline bool
	// Slots counts those of each worker, seen is their sum. heard is how many chunks had
	// finished when each told last.
	Slots map[string]int
	seen  int
	heard map[string]int
	// flight is how long chunks were in flight, held how long of that they had a slot. Older
	// chunks weigh less.
	flight, held time.Duration
	// Likely is the expected number of slots before a chunk has told of any, widened how
	// often the window has doubled since.
	Likely, widened int
	// Sparing says that the map begins with one chunk per slot, and has one more in flight
	// for each that has finished: so few are cut before it knows what items take, and how
	// many slots it has. finished counts them.
	Sparing  bool
	finished int
	guessed  int
	// Share is how many workflows fill the map's window together; 0 means this one alone.
	Share int
	// Beyond is how many items wait elsewhere.
	Beyond int64
	// Soon is the longest that a chunk may take while the next stage waits for its items; 0:
	// it does not.
	Soon time.Duration
}

func newSizer(in gpumux.MapInput) sizer {
	return sizer{fixedChunk: int64(in.Chunk), Fixed: in.Window, Slots: map[string]int{}, heard: map[string]int{}}
}

// Size is the number of items of the next chunk of a piece when left items are not yet
// handed out.
func (s *sizer) Size(piece contract.Piece, left int64) int64 {
	if s.fixedChunk > 0 {
		return s.fixedChunk
	}
	perItem, slots, share := s.Pace(piece), int64(max(1, s.count())), int64(s.share())
	size := min((left+s.Beyond)/(2*slots), gpumux.MaxChunk)
	if s.Largest == 0 {
		// Nobody knows what items take; the limit hands back what is too much.
		if size /= 2; s.Soon > 0 {
			size = min(size, firstSoon)
		}
		return s.whole(max(1, size, s.minItems(left+s.Beyond, slots)))
	}
	size = min(size, s.Largest*maxGrowth)
	if perItem > 0 {
		size = min(size, int64(s.longest()/perItem))
	}
	if piece.Pace > 0 { // slower than others, who knows for how long
		size = min(size, piece.Len()/(2*slots), int64(maxLate/perItem))
	}
	if perItem > 0 {
		shortest := max(shortestChunk, time.Duration(slots)*shortestPerSlot) * time.Duration(slots) / time.Duration(share)
		if share < slots && piece.Pace == 0 {
			shortest = max(shortest, time.Duration((left+s.Beyond)/(2*share))*perItem)
		}
		size = max(size, min(int64(min(shortest, maxShortest)/perItem), s.Largest*maxGrowth, gpumux.MaxChunk))
	}
	return s.whole(max(1, size, s.minItems(left+s.Beyond, slots)))
}

// Worth is how many items are worth a chunk that waits for a slot.
func (s *sizer) Worth() int64 {
	if s.PerItem == 0 {
		return gpumux.MaxChunk
	}
	return max(1, s.batch, int64(shortestChunk/s.PerItem))
}

// minItems is how many items a chunk has at least, of so many that are left: what fills a
// slot, as far as its share of them does. Items that run at the same time gain little by
// being spread, and small chunks would leave some of them behind.
func (s *sizer) minItems(left, slots int64) int64 {
	floor := min(s.full(), max((left+slots-1)/slots, s.concurrent/4), gpumux.MaxChunk)
	if s.concurrent == 0 && s.Largest > 0 {
		return min(floor, s.Largest*maxGrowth)
	}
	return floor
}

// whole rounds a chunk down to whole micro-batches, if it has any.
func (s *sizer) whole(size int64) int64 {
	if s.batch > 0 && size > s.batch {
		return size / s.batch * s.batch
	}
	return size
}

// full is how many items fill a slot: so many run at the same time, or it begins and ends
// with few of them under way.
func (s *sizer) full() int64 {
	full := max(minBatches*s.batch, s.concurrent)
	if s.Inline {
		return min(full, contract.FirstInline)
	}
	return full
}

// Together is how many items a slot has under way at a time; 0: one, or not known.
func (s *sizer) Together() int64 { return max(s.batch, s.concurrent) }

// chunksPerSlot is how many chunks one slot works on at a time: those whose items run at
// the same time, and half as many items that wait for them.
func (s *sizer) chunksPerSlot() int {
	if s.concurrent == 0 {
		return 1
	}
	chunk := cmp.Or(s.fixedChunk, max(1, s.full()/2)) // toward the end they get smaller
	return int((s.concurrent*3/2 + chunk - 1) / chunk)
}

func (s *sizer) Pace(piece contract.Piece) time.Duration {
	return cmp.Or(time.Duration(piece.Pace), s.PerItem)
}

// Limit is the time after which a chunk takes no further item, because its items are
// slower than others and other slots should have the rest. 0 means none. It is called
// once per chunk that is handed out.
func (s *sizer) Limit(chunk contract.Piece) time.Duration {
	items := chunk.Len()
	if s.fixedChunk > 0 || items == 1 {
		return 0
	}
	likely := time.Duration(items) * s.Pace(chunk)
	if s.Largest == 0 {
		if s.concurrent > 0 {
			return 0 // all its items begin at once, or wait for few others
		}
		if s.guessed++; s.guessed > s.count() {
			return behindLimit
		}
	}
	return max(min(minLimit, cmp.Or(s.Soon, minLimit)), min(slack*likely, likely+maxLate))
}

// Whole is the number of chunks that the map should have in flight: one more than each
// slot works on, so that it finds its next chunk waiting.
func (s *sizer) Whole() int {
	if s.Fixed > 0 {
		return s.Fixed
	}
	return min(max(minWindow, (s.chunksPerSlot()+1)*s.count()), gpumux.MaxWindow)
}

func (s *sizer) count() int {
	if s.seen > 0 {
		return s.seen
	}
	return min(cmp.Or(s.Likely, firstSlots), maxInFlight) << s.widened
}

// share is how many slots the map has beside others. By Little's law they are as many as
// it has chunks in flight, times the part of that time in which a chunk has a slot.
func (s *sizer) share() int {
	all, flight := max(1, s.count()), s.flight.Microseconds()
	if flight == 0 {
		return all
	}
	slots := (int64(s.Part()*max(1, s.Share))*s.held.Microseconds() + flight/2) / flight / int64(s.chunksPerSlot())
	return min(max(1, int(slots)), all)
}

func (s *sizer) longest() time.Duration {
	shortest, longest := minLongest, longestChunk
	if s.Soon > 0 {
		shortest, longest = min(minLongest, s.Soon), min(longestChunk, max(s.Soon, time.Duration(s.count())*longestPerSlot))
	}
	if s.flight == 0 {
		return longest // of workers that do not tell for how long they held a chunk
	}
	return min(max(shortest, time.Duration(s.count())*longestPerSlot), longest)
}

// Wait is how long to wait for a finished chunk before the window is widened; 0 means for
// ever.
func (s *sizer) Wait() time.Duration {
	if s.Fixed > 0 || s.seen > 0 || s.Likely > 0 || s.Whole() >= widest {
		return 0
	}
	return firstWait << s.widened
}

// Widen doubles the window: nothing has finished within Wait.
func (s *sizer) Widen() { s.widened++ }

func (s *sizer) Part() int {
	whole := s.Whole()
	if s.Sparing && s.Fixed == 0 && s.concurrent == 0 {
		whole = min(whole, max(minWindow, s.count())+s.finished)
	}
	return min(maxInFlight, max(1, whole/max(1, s.Share)))
}

// Abreast is how many segments the map needs at once, so that one fills the slots while
// another ends.
func (s *sizer) Abreast() int { return max(minAbreast, (s.Whole()+segmentWindow-1)/segmentWindow) }

func (s *sizer) Carry() contract.Pace {
	return contract.Pace{
		Largest: s.Largest, PerItem: gpumux.Duration(s.PerItem), Flight: gpumux.Duration(s.flight), Held: gpumux.Duration(s.held),
		Likely: s.Likely, Batch: s.batch, Concurrent: s.concurrent,
	}
}

// Resume takes over what another workflow has learnt, which is newer.
func (s *sizer) Resume(c contract.StageCarry) {
	s.Largest, s.PerItem = max(s.Largest, c.Largest), time.Duration(c.PerItem)
	s.flight, s.held, s.Likely = time.Duration(c.Flight), time.Duration(c.Held), c.Likely
	s.learnSlots(c.Slots)
	s.learnTogether(c.Batch, c.Concurrent)
	s.Informed = s.Informed || s.Largest > 0
}

func (s *sizer) learnTogether(batch, concurrent int64) {
	s.batch, s.concurrent = max(s.batch, batch), max(s.concurrent, concurrent)
	s.Informed = s.Informed || s.batch > 0 || s.concurrent > 0
}

// learnSlots learns how many slots workers have. One that is silent while the others fill
// several windows is gone. The order of a sum does not matter.
//
//workflowcheck:ignore
func (s *sizer) learnSlots(slots map[string]int) {
	for worker, count := range slots {
		s.seen += count - s.Slots[worker]
		s.Slots[worker], s.heard[worker] = count, s.finished
	}
	for worker, at := range s.heard {
		if s.finished-at > silentWindows*s.Whole() {
			s.seen -= s.Slots[worker]
			delete(s.Slots, worker)
			delete(s.heard, worker)
		}
	}
}

// LearnShare learns from a chunk that was in flight so long, and had a slot for so long.
// The window's chunks weigh as much as all older ones together.
func (s *sizer) LearnShare(flight, held time.Duration) {
	if held <= 0 || flight <= 0 {
		return
	}
	window := time.Duration(s.Whole())
	s.flight += flight - s.flight/window
	s.held += min(held, flight) - s.held/window
}

// Learn learns from a finished chunk. Newer chunks weigh as much as all older ones
// together.
func (s *sizer) Learn(result contract.ChunkResult) {
	if result.Worker != "" {
		s.learnSlots(map[string]int{result.Worker: result.Slots})
	}
	s.learnTogether(result.Batch, result.Concurrent)
	if result.Ran == 0 {
		return
	}
	s.Informed = true
	cost := time.Duration(result.Busy) / time.Duration(result.Ran)
	if s.Largest == 0 {
		s.PerItem = cost
	} else {
		s.PerItem = (s.PerItem + cost) / 2
	}
	s.finished++
	s.Largest = max(s.Largest, result.Ran)
}

// Pause is how long an item waits that has raised so many times after the first
// one: it doubles with each.
func pauseBefore(first time.Duration, more int) time.Duration {
	pause := first
	for try := 0; try < more && pause < maxPause; try++ {
		pause = min(2*pause, max(first, maxPause))
	}
	return pause
}
