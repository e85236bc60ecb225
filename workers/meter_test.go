package workers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bout is a meter whose clock the test moves.
type bout struct {
	*meter
	t     *testing.T
	pool  *pool
	clock time.Time
}

func newBout(t *testing.T, want int) *bout {
	p, _ := fakePool(8, "A")
	b := &bout{newMeter(time.Second), t, p, time.Unix(1000, 0)}
	b.now = func() time.Time { return b.clock }
	b.reset(want)
	return b
}

func (b *bout) pass(d time.Duration) { b.clock = b.clock.Add(d) }

// start begins a call in a place whose process is warm.
func (b *bout) start(place int, task string) *stint {
	b.pool.warmed(b.pool.places[place], task)
	return b.begin(b.pool, b.pool.places[place], task, false)
}

// found is the measurement that is there, or the zero value.
func (b *bout) found() measurement {
	select {
	case m := <-b.measured:
		return m
	default:
		return measurement{}
	}
}

func TestMeter_ItemsPerSecondOfAllSlots(t *testing.T) {
	b := newBout(t, 2)
	s, u := b.start(0, "x"), b.start(1, "x")
	for range 5 {
		b.pass(100 * time.Millisecond)
		s.done(0)
		b.pass(100 * time.Millisecond)
		s.done(0)
		u.done(0)
	}
	m := b.found()
	require.InDelta(t, 15, m.rate, 0.01, "10 and 5 items per second")
	require.Equal(t, "x", m.task)
	require.True(t, b.current(m))
	b.reset(3)
	require.False(t, b.current(m))
}

func TestMeter_MicroBatchesCountWhole(t *testing.T) {
	b := newBout(t, 1)
	s := b.start(0, "x")
	var rates []float64
	for range 40 {
		b.pass(200 * time.Millisecond)
		for range 64 { // a burst
			s.done(0)
			b.pass(time.Microsecond)
		}
		s.end()
		s = b.start(0, "x")
		if rate := b.found().rate; rate > 0 {
			rates = append(rates, rate)
		}
	}
	require.Greater(t, len(rates), 4)
	require.InDelta(t, 320, median(rates), 6)
}

func TestMeter_LackOfWorkDoesNotCount(t *testing.T) {
	b := newBout(t, 2)
	s, u := b.start(0, "x"), b.start(1, "x")
	for range 4 {
		b.pass(250 * time.Millisecond)
		s.done(0)
		u.done(0)
	}
	require.InDelta(t, 8, b.found().rate, 0.01)
	u.end()
	// One slot alone, and faster for it: nothing is measured, and in the end that is told.
	for range 30 {
		b.pass(100 * time.Millisecond)
		s.done(0)
	}
	require.Zero(t, b.found())
	for range 400 {
		b.pass(100 * time.Millisecond)
		s.done(0)
	}
	require.True(t, b.found().hungry)
	// A gap of a few milliseconds between two chunks is no lack.
	u = b.start(1, "x")
	for range 8 {
		b.pass(245 * time.Millisecond)
		s.done(0)
		u.done(0)
		u.end()
		b.pass(5 * time.Millisecond)
		u = b.start(1, "x")
	}
	require.InDelta(t, 8, b.found().rate, 0.2)
}

func TestMeter_ChunksOfAnySizeCountAlike(t *testing.T) {
	b := newBout(t, 1)
	for _, items := range []int{1, 8, 64, 1, 1, 1, 30} {
		s := b.start(0, "x")
		for range items {
			b.pass(20 * time.Millisecond)
			s.done(0)
		}
		s.end()
		b.pass(30 * time.Millisecond) // to the next chunk
	}
	require.InDelta(t, 50, b.found().rate, 0.5)
}

func TestMeter_StartsAreLeftOut(t *testing.T) {
	b := newBout(t, 1)
	s := b.begin(b.pool, b.pool.places[0], "x", false)
	b.pass(30 * time.Second) // imports, a model
	s.done(0)
	for range 11 {
		b.pass(100 * time.Millisecond)
		s.done(0)
	}
	require.InDelta(t, 10, b.found().rate, 0.01)

	// A slot that starts is none that works: its neighbour has the device to itself meanwhile.
	b.reset(2)
	u := b.begin(b.pool, b.pool.places[1], "x", false)
	for range 30 {
		b.pass(100 * time.Millisecond)
		s.done(0)
	}
	require.Zero(t, b.found())
	u.done(0)
	for range 10 {
		b.pass(200 * time.Millisecond)
		s.done(0)
		u.done(0)
	}
	require.InDelta(t, 10, b.found().rate, 0.01)
}

func TestMeter_ChangesAreLeftOut(t *testing.T) {
	b := newBout(t, 1)
	s, u := b.start(0, "x"), b.start(1, "x")
	b.pass(10 * time.Second)
	b.reset(1)
	b.pass(10 * time.Second)
	s.done(0) // it began with another number of slots
	for range 8 {
		b.pass(200 * time.Millisecond)
		s.done(0) // u has yet to go
	}
	u.end()
	require.Zero(t, b.found())
	for range 8 {
		b.pass(125 * time.Millisecond)
		s.done(0)
	}
	require.InDelta(t, 8, b.found().rate, 0.01)
}

func TestMeter_OneTaskAtATime(t *testing.T) {
	b := newBout(t, 2)
	s := b.start(0, "x")
	b.pass(2 * time.Second)
	s.done(0)
	other := b.start(1, "y")
	for range 20 {
		b.pass(100 * time.Millisecond)
		s.done(0)
		other.done(0)
	}
	require.Zero(t, b.found(), "two tasks side by side")
	s.end()
	b.pass(2 * time.Second)
	other.done(0) // nothing of x for a while: y is the task now
	third := b.start(0, "y")
	for range 20 {
		b.pass(100 * time.Millisecond)
		other.done(0)
		third.done(0)
	}
	m := b.found()
	require.Equal(t, "y", m.task)
	require.InDelta(t, 20, m.rate, 0.01)

	// A call that has the device whole belongs to no number of slots.
	third.end()
	whole := b.begin(b.pool, b.pool.places[0], "y", true)
	b.found()
	for range 40 {
		b.pass(100 * time.Millisecond)
		other.done(0)
		whole.done(0)
	}
	require.Zero(t, b.found())
}

func TestMeter_PeakOfATask(t *testing.T) {
	b := newBout(t, 1)
	s := b.start(0, "x")
	s.done(5)
	s.done(9)
	s.done(7)
	require.EqualValues(t, 9, b.peak("x"))
	require.Zero(t, b.peak("y"))
}
