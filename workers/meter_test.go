package workers

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// card is a GPU that takes 100 W.
type card struct {
	mu    sync.Mutex
	load  gpu.Load
	err   error
	reads int
	began time.Time
}

func (c *card) set(computing float64, slowed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load, c.err = gpu.Load{Computing: computing, Power: 100, Slowed: slowed}, err
}

func (c *card) read(string) (gpu.Load, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	load := c.load
	load.Energy = 100 * (1000 + time.Since(c.began).Seconds())
	return load, c.err
}

func (c *card) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// halfBusy is a meter of such GPUs.
func halfBusy(t *testing.T, err error) (*card, *meter) {
	t.Helper()
	c := &card{began: time.Now()}
	c.set(0.5, false, err)
	return c, &meter{life: t.Context(), devices: map[string]*metered{}, load: c.read}
}

// Calls that have a GPU at the same time share it, so that all shares are what it did.
func TestMeter_SharesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := halfBusy(t, nil)
		a := m.Begin([]string{"GPU-1"})
		time.Sleep(10*time.Second + time.Millisecond)
		b := m.Begin([]string{"GPU-1"})
		time.Sleep(10 * time.Second)
		one := a.End(0)
		c.set(1, true, nil)
		time.Sleep(10 * time.Second)
		two := b.End(3.6)
		require.InDelta(t, 15, time.Duration(one.Time).Seconds(), 0.01)
		require.InDelta(t, 7.5, time.Duration(one.Computing).Seconds(), 0.01)
		require.InDelta(t, 1500, one.Energy, 1)
		require.Zero(t, one.Slowed)
		require.InDelta(t, 15, time.Duration(two.Time).Seconds(), 0.01)
		require.InDelta(t, 12.5, time.Duration(two.Computing).Seconds(), 0.51, "a reading counts for a second")
		require.InDelta(t, 10, time.Duration(two.Slowed).Seconds(), 1)
		require.InDelta(t, 0.015, two.Cost, 1e-4)
		require.InDelta(t, 20, time.Duration(two.Slots).Seconds(), 0.01)
		require.Equal(t, map[string][]int{"GPU-1": {50, 50, 50, 50, 90, 100}}, m.History([]config.Group{{Name: "GPU-1"}, {Name: "GPU-2"}}))
	})
}

// What the driver does not tell counts for nothing, and later answers count again.
func TestMeter_ADriverThatDoesNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := halfBusy(t, gpu.ErrSilent)
		a := m.Begin([]string{"GPU-1", "GPU-2"})
		time.Sleep(10*time.Second + time.Millisecond)
		c.set(0.5, false, nil)
		time.Sleep(10 * time.Second)
		use := a.End(0)
		require.InDelta(t, 20, time.Duration(use.Time).Seconds(), 4, "ten of each GPU")
		require.InDelta(t, 100, use.Energy/time.Duration(use.Time).Seconds(), 1)
		c.set(0.5, false, errors.ErrUnsupported)
		a = m.Begin([]string{"GPU-3"})
		time.Sleep(time.Minute)
		require.Nil(t, a.End(0))
		require.Nil(t, m.Begin([]string{gpu.CPU}).End(1))
	})
}

// A device without calls is not read.
func TestMeter_EndsWithTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := halfBusy(t, nil)
		for range 100 { // calls follow each other closely
			call := m.Begin([]string{"GPU-1"})
			time.Sleep(96 * time.Millisecond)
			call.End(0)
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, 11, c.count(), 2)
		before := c.count()
		time.Sleep(time.Hour)
		require.InDelta(t, before, c.count(), 1)
		call := m.Begin([]string{"GPU-1"})
		synctest.Wait()
		time.Sleep(2 * time.Second)
		require.InDelta(t, 2, time.Duration(call.End(0).Time).Seconds(), 0.01)
	})
}
