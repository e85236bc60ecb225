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
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
)

// hanging lets the driver come back from no call about the memory of a device until the
// channel is closed.
func hanging(d *dgxa100.Device) (calls *atomic.Int32, hangs chan struct{}) {
	calls, hangs = &atomic.Int32{}, make(chan struct{})
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		calls.Add(1)
		<-hangs
		return nvml.Memory_v2{Total: gib, Free: gib}, nvml.SUCCESS
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
		require.Equal(t, unknown(), status)
		require.Equal(t, 2*time.Second, time.Since(begun))
		for range 10 {
			_, err = inv.Status(d.UUID)
			require.ErrorIs(t, err, ErrSilent)
			_, err = inv.ProcessMemory(d.UUID)
			require.ErrorIs(t, err, ErrSilent)
		}
		require.Equal(t, 21*2*time.Second, time.Since(begun))
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
