//go:build cgo

package gpu

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
)

// hanging lets the driver come back from no call about the memory of a device until the
// channel is closed.
func hanging(d *dgxa100.Device) (calls *atomic.Int32, hangs chan struct{}) {
	calls, hangs = &atomic.Int32{}, make(chan struct{})
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		calls.Add(1)
		<-hangs
		return nvml.Memory{Total: gib, Free: gib}, nvml.SUCCESS
	}
	return calls, hangs
}

func TestInventory_ADriverThatHangsIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		inv := open(t, s)
		d := device(s, 3)
		calls, hangs := hanging(d)
		begun := time.Now()
		status, err := inv.Status(d.UUID)
		require.ErrorIs(t, err, ErrSilent)
		require.NotErrorIs(t, err, ErrLost)
		require.Equal(t, &Health{ActionDrain, ReasonSilent}, status.Health)
		require.Equal(t, 2*time.Second, time.Since(begun))
		for range 10 {
			_, err = inv.Status(d.UUID)
			require.ErrorIs(t, err, ErrSilent)
			_, err = inv.Recovery(d.UUID)
			require.ErrorIs(t, err, ErrSilent)
			_, err = inv.ProcessMemory(d.UUID)
			require.ErrorIs(t, err, ErrSilent)
		}
		require.Equal(t, 2*time.Second, time.Since(begun), "nobody waits for what hangs already")
		require.EqualValues(t, 1, calls.Load())
		status, err = inv.Status(device(s, 2).UUID)
		require.NoError(t, err, "the others answer")
		require.Equal(t, 40*gib, status.Memory.Total)

		close(hangs)
		synctest.Wait()
		status, err = inv.Status(d.UUID)
		require.NoError(t, err)
		require.Equal(t, gib, status.Memory.Total)
	})
}

func TestInventory_CloseWaitsForACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		down := false
		s.ShutdownFunc = func() nvml.Return { down = true; return nvml.SUCCESS }
		inv := open(t, s)
		_, hangs := hanging(device(s, 0))
		_, err := inv.Status(device(s, 0).UUID)
		require.ErrorIs(t, err, ErrSilent)
		closed := make(chan error, 1)
		go func() { closed <- inv.Close() }()
		synctest.Wait()
		require.False(t, down, "the library is in use")
		close(hangs)
		require.NoError(t, <-closed)
		require.True(t, down)
	})
}

func TestWatch_ADeviceThatDoesNotAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		symbols(s, with(eventSymbols...)...)
		answers, sets, freed := scripted(s)
		inv := open(t, s)
		silent, beside := device(s, 2), device(s, 5)
		_, hangs := hanging(silent)
		silent.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { <-hangs; return 0xFFFF, nvml.SUCCESS }
		events, stop := watching(t, inv)
		answers <- answer{nvml.EventData{Device: beside, EventType: nvml.EventTypeXidCriticalError, EventData: 31, GpuInstanceId: noInstance}, nvml.SUCCESS}
		require.Equal(t, EventXid, next(t, events).Kind, "the others are watched")
		begun := time.Now()
		require.Equal(t, Event{UUID: silent.UUID, GPU: silent.UUID, Kind: EventLost, Action: ActionDrain}, next(t, events))
		require.Greater(t, time.Since(begun), 10*time.Second, "it has time to wake up")
		answers <- answer{nvml.EventData{Device: beside, EventType: nvml.EventTypeXidCriticalError, EventData: 31, GpuInstanceId: noInstance}, nvml.SUCCESS}
		require.Equal(t, EventXid, next(t, events).Kind, "it is said once")
		close(hangs)
		require.Equal(t, Event{UUID: silent.UUID, GPU: silent.UUID, Kind: EventRestored, Action: ActionNone}, next(t, events))
		time.Sleep(time.Second)
		require.EqualValues(t, 2, sets.Load(), "its events are asked for again")
		stop()
		require.Equal(t, sets.Load(), freed.Load())
		require.Empty(t, events)
	})
}

func TestWatch_LooksWhileTheEventsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		symbols(s, with(eventSymbols...)...)
		scripted(s)
		hangs := make(chan struct{})
		var waits atomic.Int64
		s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
			return &mock.EventSet{
				WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
					waits.Add(1)
					<-hangs
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				},
				FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			}, nvml.SUCCESS
		}
		d := device(s, 4)
		n := recoverable(d)
		inv := open(t, s)
		events, stop := watching(t, inv)
		for _, action := range []Action{ActionReset, ActionNone} {
			n.Store(map[Action]uint32{ActionReset: 1}[action])
			require.Equal(t, Event{UUID: d.UUID, GPU: d.UUID, Kind: EventRecovery, Action: action}, next(t, events))
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, waits.Load())
		close(hangs)
		stop()
	})
}

// Nothing waits for ever for a call that hangs: closing leaves the library loaded.
func TestInventory_CloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		s.ShutdownFunc = func() nvml.Return { t.Error("the library is in use"); return nvml.SUCCESS }
		d, err := openNVML(t.Context(), s)
		require.NoError(t, err)
		inv, err := openWith(t.Context(), d, Options{})
		require.NoError(t, err)
		_, hangs := hanging(device(s, 0))
		_, err = inv.Status(device(s, 0).UUID)
		require.ErrorIs(t, err, ErrSilent)
		begun := time.Now()
		require.NoError(t, inv.Close())
		require.Equal(t, 2*time.Second, time.Since(begun))
		close(hangs)
	})
}

func TestOpen_LeavesOutAGPUWhoseDriverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		_, hangs := hanging(device(s, 1))
		_, also := hanging(device(s, 4))
		defer close(hangs)
		defer close(also)
		begun := time.Now()
		d, err := openNVML(t.Context(), s)
		require.NoError(t, err)
		inv, err := openWith(t.Context(), d, Options{})
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, time.Since(begun))
		require.Len(t, inv.GPUs(), 6)
		require.Contains(t, inv.Reason(), "GPU 1 left out: the driver has not answered for 30s; see what nvidia-smi and dmesg say")
		require.Contains(t, inv.Reason(), "GPU 4 left out")
		require.Empty(t, inv.Unusable(), "the others can be used")
		_, err = inv.Status(device(s, 0).UUID)
		require.NoError(t, err)
		require.NoError(t, inv.Close())
	})
}

func TestOpen_ADriverThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dgx()
		hangs := make(chan struct{})
		defer close(hangs)
		s.InitFunc = func() nvml.Return { <-hangs; return nvml.SUCCESS }
		_, err := openNVML(t.Context(), s)
		var absent *absentError
		require.ErrorAs(t, err, &absent)
		require.ErrorContains(t, err, "has not answered for 30s")

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		_, err = openNVML(ctx, s)
		require.EqualError(t, err, "interrupted")
	})
}
