package autoslots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/pool"
)

// bout is a meter whose clock the test moves.
type bout struct {
	*meter
	pool    *pool.Pool
	handles []*pool.Seat
	clock   time.Time
	seen    []measurement
}

func newBout(want int) *bout {
	p, handles, _ := testPool(8, "A")
	b := &bout{meter: newMeter(time.Second), pool: p, handles: handles, clock: time.Unix(1000, 0)}
	b.now = func() time.Time { return b.clock }
	b.reset(want)
	return b
}

func (b *bout) pass(d time.Duration) {
	select {
	case m := <-b.measured:
		b.seen = append(b.seen, m)
	default:
	}
	b.clock = b.clock.Add(d)
}

// start begins a call in a place whose process is warm.
func (b *bout) start(at int, task string) *Stint {
	b.pool.SetWarm(b.handles[at], task)
	return b.newStint(b.pool, b.handles[at], task, false)
}

// together lets calls finish an item each, so many times.
func (b *bout) together(times int, took time.Duration, calls ...*Stint) {
	for range times {
		b.pass(took)
		for _, s := range calls {
			s.Done(0)
		}
	}
}

// found is what was measured since the last time.
func (b *bout) found() []measurement {
	b.pass(0)
	seen := b.seen
	b.seen = nil
	return seen
}

// rate is the middle of what was measured, of several.
func (b *bout) rate(t *testing.T) float64 {
	t.Helper()
	var rates []float64
	for _, m := range b.found() {
		if m.rate > 0 {
			rates = append(rates, m.rate)
		}
	}
	require.Greater(t, len(rates), 2)
	return median(rates)
}

func TestMeter_ItemsPerSecondOfAllSlots(t *testing.T) {
	b := newBout(2)
	s, u := b.start(0, "x"), b.start(1, "x")
	for range 40 {
		b.together(1, 100*time.Millisecond, s)
		b.together(1, 100*time.Millisecond, s, u)
	}
	seen := b.found()
	require.Equal(t, "x", seen[0].task)
	require.True(t, b.current(seen[0]))
	b.seen = seen
	require.InDelta(t, 15, b.rate(t), 1.01, "10 and 5 items per second")
	b.reset(3)
	require.False(t, b.current(seen[0]))
}

// One slot gets on while the other waits: what counts is what both come to.
func TestMeter_UnfairSlots(t *testing.T) {
	b := newBout(2)
	s, u := b.start(0, "x"), b.start(1, "x")
	for range 10 {
		b.together(40, 20*time.Millisecond, s)
		b.together(1, 20*time.Millisecond, u)
	}
	require.InDelta(t, 50, b.rate(t), 1)
}

func TestMeter_MicroBatchesCountWhole(t *testing.T) {
	b := newBout(1)
	s := b.start(0, "x")
	for range 40 {
		b.pass(200 * time.Millisecond)
		for range 64 { // a burst
			s.Done(0)
			b.pass(time.Microsecond)
		}
		s.End()
		s = b.start(0, "x")
	}
	require.InDelta(t, 320, b.rate(t), 6)
}

func TestMeter_LackOfWorkDoesNotCount(t *testing.T) {
	b := newBout(2)
	s, u := b.start(0, "x"), b.start(1, "x")
	b.together(30, 250*time.Millisecond, s, u)
	require.InDelta(t, 8, b.rate(t), 0.01)
	u.End()
	// One slot alone, and faster for it: nothing is measured.
	b.together(300, 100*time.Millisecond, s)
	require.Empty(t, b.found())
	// A gap of a few milliseconds between two chunks is no lack.
	u = b.start(1, "x")
	for range 30 {
		b.together(1, 245*time.Millisecond, s, u)
		u.End()
		b.pass(5 * time.Millisecond)
		u = b.start(1, "x")
	}
	require.InDelta(t, 8, b.rate(t), 0.2)
}

// A long item of one slot that ends in a moment when the others have work was not done in
// that moment.
func TestMeter_ItemsCountAsFarAsTheirTimeDoes(t *testing.T) {
	b := newBout(2)
	s := b.start(0, "x")
	for range 20 {
		b.pass(9 * time.Second)
		u := b.start(1, "x")
		b.pass(time.Second)
		s.Done(0)
		u.Done(0)
		u.End()
	}
	require.InDelta(t, 1.1, b.rate(t), 0.01)
}

func TestMeter_ChunksOfAnySizeCountAlike(t *testing.T) {
	b := newBout(1)
	for i := range 60 {
		s := b.start(0, "x")
		b.together([]int{1, 8, 64, 1, 30}[i%5], 20*time.Millisecond, s)
		s.End()
		b.pass(30 * time.Millisecond) // to the next chunk
	}
	require.InDelta(t, 50, b.rate(t), 0.5)
}

func TestMeter_StartsAreLeftOut(t *testing.T) {
	b := newBout(1)
	s := b.newStint(b.pool, b.handles[0], "x", false)
	b.pass(30 * time.Second) // imports, a model
	b.together(1, 0, s)
	b.together(40, 100*time.Millisecond, s)
	require.InDelta(t, 10, b.rate(t), 0.01)

	// A slot that starts is none that works, and no lack of work: its neighbour has the
	// device to itself meanwhile.
	b.reset(2)
	u := b.newStint(b.pool, b.handles[1], "x", false)
	b.together(600, 100*time.Millisecond, s)
	require.Empty(t, b.found())
	b.together(40, 200*time.Millisecond, s, u)
	require.InDelta(t, 10, b.rate(t), 0.01)
}

func TestMeter_ChangesAreLeftOut(t *testing.T) {
	b := newBout(1)
	s, u := b.start(0, "x"), b.start(1, "x")
	b.pass(10 * time.Second)
	b.reset(1)
	b.pass(10 * time.Second)
	b.together(50, 200*time.Millisecond, s) // u has yet to go
	u.End()
	require.Empty(t, b.found())
	b.together(50, 125*time.Millisecond, s)
	require.InDelta(t, 8, b.rate(t), 0.01)
}

func TestMeter_OneTaskAtATime(t *testing.T) {
	b := newBout(2)
	s := b.start(0, "x")
	b.together(1, 2*time.Second, s)
	other := b.start(1, "y")
	b.together(50, 100*time.Millisecond, s, other)
	require.Empty(t, b.found(), "two tasks side by side")
	s.End()
	b.together(1, 2*time.Second, other) // nothing of x for a while: y is the task now
	third := b.start(0, "y")
	b.together(50, 100*time.Millisecond, other, third)
	require.Equal(t, "y", b.seen[0].task)
	require.InDelta(t, 20, b.rate(t), 0.01)

	// A call that has the device whole belongs to no number of slots.
	third.End()
	whole := b.newStint(b.pool, b.handles[0], "y", true)
	b.together(300, 100*time.Millisecond, other, whole)
	require.Empty(t, b.found())
}

func TestMeter_PeakOfATask(t *testing.T) {
	b := newBout(1)
	s := b.start(0, "x")
	s.Done(5)
	s.Done(9)
	s.Done(7)
	require.EqualValues(t, 9, b.peak("x"))
	require.Zero(t, b.peak("y"))
}
