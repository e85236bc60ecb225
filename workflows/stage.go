package workflows

import (
	"cmp"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// What waits in front of a stage is bounded by twice its window in chunks of aheadTime,
	// or by firstAhead items while its pace is not known, and by aheadBytes of values.
	aheadTime  = time.Second
	aheadBytes = 256 << 20
	firstAhead = 1024
	// muchFaster is a next stage that waits for items however soon they come.
	muchFaster = 1.25
	// chunkBytes bounds the memory of the values of the stage before that one chunk reads,
	// beyond a micro-batch. Each takes valueBytes besides its own.
	chunkBytes = 24 << 20
	valueBytes = 1 << 10
)

// stage is one task of a map, with the items that wait for it.
type stage struct {
	e  *engine
	at int
	in gpumux.MapInput

	ladder *ladder
	// items are those that travel inline. In a later stage they are the values of the one
	// before as they come.
	items []json.RawMessage
	// parts is the folder of its results.
	parts string
	todo  contract.Backlog
	sizer sizer
	// asking says that no worker of its pools has answered yet.
	asking bool
	tally  tally
	// beyond is how many items wait outside of this workflow.
	beyond int64

	inFlight int
	// underWay is how many items are in flight, got how many results came back through the
	// history, and gotInBytes what they weigh.
	underWay        int64
	got, gotInBytes int
	// values is how many values in the store were weighed, weight their bytes.
	values, weight int64
}

func newStage(e *engine, at int, in gpumux.MapInput) *stage {
	s := &stage{e: e, at: at, in: in, sizer: newSizer(in)}
	s.ladder = newLadder(in, func(ctx workflow.Context) {
		e.changed = true
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
	return s
}

func (s *stage) next() *stage {
	if s.at+1 < len(s.e.stages) {
		return s.e.stages[s.at+1]
	}
	return nil
}

func (s *stage) before() *stage {
	if s.at > 0 {
		return s.e.stages[s.at-1]
	}
	return nil
}

// upstream is how many items of this workflow have not come as far as the stage.
func (s *stage) upstream() (items int64) {
	for _, other := range s.e.stages[:s.at] {
		items += other.todo.Items() + other.underWay
	}
	return items
}

// ready is the piece to cut the next chunk from and how many items it has, 0 if none is
// to be handed out now. One that is smaller than it should be waits: for more items while
// every slot has another, or for more room in front of the next stage.
func (s *stage) ready(ctx workflow.Context) (at int, size int64) {
	now := workflow.Now(ctx)
	s.sizer.Beyond, s.sizer.Soon = s.beyond+s.upstream(), s.soon()
	if s.todo.Due(now) != 0 || s.inFlight >= s.sizer.Part() {
		return 0, 0
	}
	at = s.todo.First(now)
	left, room := s.todo.Items(), int64(gpumux.MaxChunk)
	size = min(s.sizer.Size(s.todo[at], left), s.readable())
	if next := s.next(); next != nil {
		ahead := next.ahead(ctx)
		if room = ahead - next.todo.Items() - s.underWay; room < min(size, left, (ahead+1)/2) {
			return 0, 0
		}
	}
	if s.upstream() > 0 && (left < s.floor(ctx) || left < min(size, s.sizer.Worth()) && s.inFlight >= s.sizer.count()) {
		return 0, 0
	}
	if s.in.Chunk == 0 {
		size = min(size, room)
	}
	return at, size
}

// soon is how soon the next stage should have items: long before it has run what it has,
// unless it is so fast that it waits in any case. 0: it does not matter.
func (s *stage) soon() time.Duration {
	next := s.next()
	if next == nil {
		return 0
	}
	rate, nextRate := s.rate(), next.rate()
	if rate > 0 && nextRate > muchFaster*rate {
		return 0
	}
	if nextRate == 0 {
		return shortLongest
	}
	return max(shortLongest, time.Duration(float64(next.todo.Items()+next.underWay)/nextRate*float64(time.Second/2)))
}

// rate is how many items a second the stage's slots do, 0 while unknown.
func (s *stage) rate() float64 {
	if s.sizer.PerItem == 0 {
		return 0
	}
	return float64(s.sizer.count()) / s.sizer.PerItem.Seconds()
}

// floor is how many items a chunk waits for while more may come: where values travel in
// the history, it has no room for any number of chunks.
func (s *stage) floor(ctx workflow.Context) int64 {
	if s.parts != "" {
		return 1
	}
	return cmp.Or(int64(s.in.Chunk), s.e.budget.minItems(ctx))
}

// ahead is how many items may wait in front of the stage, so that its slots never do.
func (s *stage) ahead(ctx workflow.Context) int64 {
	chunk := max(1, s.sizer.full(), int64(s.in.Chunk))
	items := max(firstAhead, 2*chunk)
	if s.sizer.PerItem > 0 {
		items = 2 * int64(s.sizer.Part()) * max(chunk, int64(aheadTime/s.sizer.PerItem))
	}
	if weight := s.before().itemWeight(); weight > 0 {
		items = min(items, aheadBytes/weight)
	}
	// Twice: while fewer than its floor wait here, the stage before must have room.
	return max(items, int64(s.sizer.count()), chunk, 2*s.floor(ctx))
}

// readable is how many values of the stage before one chunk may read.
func (s *stage) readable() int64 {
	before := s.before()
	if before == nil || before.itemWeight() == 0 {
		return gpumux.MaxChunk
	}
	return max(1, s.sizer.batch, chunkBytes/(before.itemWeight()+valueBytes))
}

// itemWeight is the mean weight of a value in the store, 0 while none is known.
func (s *stage) itemWeight() int64 { return s.weight / max(1, s.values) }

func (s *stage) carry() contract.StageCarry {
	return contract.StageCarry{
		Todo: s.todo, Counts: s.tally.Counts, Chunks: s.tally.chunks, Ran: s.tally.ran, Busy: gpumux.Duration(s.tally.busy), Peak: s.tally.peaks.Known(), GPU: s.tally.use.Known(),
		Pace: s.sizer.Carry(), Slots: s.sizer.Slots, Passed: s.ladder.carry(), Values: s.values, Weight: s.weight,
	}
}

func (s *stage) resume(c contract.StageCarry) {
	s.todo, s.beyond, s.values, s.weight = c.Todo, c.Beyond, c.Values, c.Weight
	s.ladder.resume(c.Passed)
	s.tally = tally{}
	s.tally.absorb(c)
	s.sizer.Resume(c)
}

func (s *stage) absorb(ctx workflow.Context, done contract.StageCarry) {
	s.ladder.resume(done.Passed)
	s.tally.absorb(done)
	s.sizer.Resume(done)
	s.values, s.weight = done.Values, done.Weight
	for _, piece := range done.Todo {
		s.requeue(ctx, piece)
	}
}

// stageStatus is how far a stage is in one workflow, as segments tell it to their map.
type stageStatus struct {
	contract.Counts
	Chunks   int64 `json:"chunks"`
	InFlight int   `json:"inFlight"`
	Running  int64 `json:"running"`
	// Waiting are the items in front of it, Raised those that wait to be tried again.
	Waiting    int64    `json:"waiting,omitempty"`
	Raised     int64    `json:"raised,omitempty"`
	PassedOver []string `json:"passedOver,omitempty"`
	// Left is how many items have no result yet, by rung.
	Left []int64 `json:"left,omitempty"`
}

func (s *stage) status(now time.Time) stageStatus {
	return stageStatus{
		Counts: s.tally.Counts, Chunks: s.tally.chunks, InFlight: s.inFlight, Running: s.underWay, Waiting: s.todo.Items(),
		Raised: s.todo.Waiting(now), PassedOver: s.ladder.passedOver(false), Left: s.ladder.left(s.todo),
	}
}

func (t *stageStatus) add(other stageStatus) {
	var counts contract.Counts
	counts.Add(t.Counts)
	counts.Add(other.Counts)
	t.Counts = counts
	t.Chunks, t.InFlight, t.Running = t.Chunks+other.Chunks, t.InFlight+other.InFlight, t.Running+other.Running
	t.Waiting, t.Raised = t.Waiting+other.Waiting, t.Raised+other.Raised
	for at, n := range other.Left {
		t.Left[min(at, len(t.Left)-1)] += n
	}
	t.PassedOver = withPools(t.PassedOver, other.PassedOver)
}

// progress is what people see of a stage that is so far in all workflows of the map.
func (s *stage) progress(t stageStatus) gpumux.StageProgress {
	return gpumux.StageProgress{
		Task: s.in.Task, Ladder: s.in.Rungs(), Succeeded: t.Succeeded, Failed: t.Failed, Running: t.Running, Waiting: t.Waiting, InFlight: t.InFlight,
		Chunks: t.Chunks, Slots: s.sizer.seen, ItemTime: gpumux.Duration(s.tally.busy) / gpumux.Duration(max(1, s.tally.ran)), Busy: gpumux.Duration(s.tally.busy), Peak: s.tally.peaks.Known(),
		GPU: s.tally.use.Known(),
	}
}
