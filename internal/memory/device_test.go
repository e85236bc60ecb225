package memory

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestWatch_DeviceMemory(t *testing.T) {
	const uuid = "GPU-00000000-0000-0000-0000-000000000000"
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 80 << 30}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	t.Run("over its budget", func(t *testing.T) {
		b := newWorkbench(t, inventory)
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		got, err := run(s, b.task("vram"), block{MB: 6000, Until: b.sees(6000 << 20)}, block{MB: 7000, Until: b.sees(7000 << 20)},
			block{MB: 9000, For: 30})
		f := asFault(t, err)
		require.Equal(t, gpumux.FaultBudget, f.Kind)
		require.EqualValues(t, 9000<<20, f.Peak)
		require.Equal(t, uuid, f.Device)
		require.Len(t, got, 2)
		require.EqualValues(t, 6000<<20, got[0].Peak)
		require.EqualValues(t, 7000<<20, got[1].Peak)
	})
	t.Run("with process numbers of its own", func(t *testing.T) {
		b := newWorkbench(t, inventory)
		b.probed[uuid] = false
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		got, err := run(s, b.task("vram"), block{MB: 9000, For: 0.6})
		require.NoError(t, err, "nothing is ended on numbers that mean other processes")
		require.Zero(t, got[0].Peak)
	})
	t.Run("with a driver that does not tell", func(t *testing.T) {
		b := newWorkbench(t, silent{})
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		_, err := run(s, b.task("vram"), block{MB: 9000, For: 0.6})
		require.NoError(t, err)
		require.Equal(t, 1, b.log.FilterMessageSnippet("does not tell").Len(), "said once")
	})
}

// drivers tells what each process holds on a device. For a device with a channel it hangs
// until the channel is closed.
type drivers struct {
	hangs map[string]chan struct{}
	mu    sync.Mutex
	asked map[string]int
	held  map[int]uint64
	err   error
}

func (d *drivers) ProcessMemory(uuid string) (map[int]uint64, error) {
	d.mu.Lock()
	d.asked[uuid]++
	held, err := maps.Clone(d.held), d.err
	d.mu.Unlock()
	if hangs := d.hangs[uuid]; hangs != nil {
		<-hangs
	}
	return held, err
}

func TestWatch_ADriverThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	pid, hangs := sleeper(t), make(chan struct{})
	devices := &drivers{hangs: map[string]chan struct{}{"GPU-1": hangs}, asked: map[string]int{}, held: map[int]uint64{pid: 9 << 30}}
	w := newWatch(devices, zap.NewNop())
	ended := make(chan string, 3)
	follow := func(device string, budget gpumux.Size) *watched {
		return w.Follow(device, pid, budget, func(session.Over) { ended <- device }).(*watched)
	}
	follow("GPU-1", 8<<30)
	w.round() // this call of the driver hangs
	follow(gpu.CPU, 64<<10)
	follow("GPU-2", 8<<30)
	require.Eventually(t, func() bool { w.round(); return len(ended) == 2 }, time.Minute, time.Millisecond)
	require.ElementsMatch(t, []string{gpu.CPU, "GPU-2"}, []string{<-ended, <-ended})
	devices.mu.Lock()
	require.Equal(t, 1, devices.asked["GPU-1"], "no second call is made while one hangs")
	devices.mu.Unlock()
	close(hangs)
	require.Equal(t, "GPU-1", <-ended)
	w.readers.Wait()
}

func TestWatch_MeasuresAnewOrGivesTheLastReading(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zap.DebugLevel)
	devices := &drivers{asked: map[string]int{}, held: map[int]uint64{os.Getpid(): 1 << 30}}
	w := newWatch(devices, zap.New(core))
	f := w.Follow("GPU-1,GPU-2", os.Getpid(), 0, func(session.Over) {})
	w.round()
	w.readers.Wait()
	require.EqualValues(t, 2<<30, f.Held())
	devices.held = map[int]uint64{os.Getpid(): 2 << 30}
	require.EqualValues(t, 4<<30, f.Measure())
	devices.err, devices.held = fmt.Errorf("gpu: processes: %w", gpu.ErrSilent), nil
	for range 3 {
		require.EqualValues(t, 4<<30, f.Measure())
	}
	require.Equal(t, 2, seen.FilterMessageSnippet("does not answer").Len(), "said once of each")
	devices.err = gpu.ErrLost
	require.Zero(t, f.Measure())
	require.Equal(t, 2, seen.Len(), "the guard speaks of lost devices")
}

func TestWatch_WhatAProcessHoldsWithItsDescendants(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	var child int
	_, err = fmt.Fscan(out, &child)
	require.NoError(t, err)
	w := newWatch(&drivers{asked: map[string]int{}, held: map[int]uint64{cmd.Process.Pid: 1 << 30, child: 2 << 30}}, zap.NewNop())
	f := w.Follow("GPU-1,GPU-2", cmd.Process.Pid, 0, func(session.Over) {})
	w.round()
	w.readers.Wait()
	require.EqualValues(t, 6<<30, f.Measure())
}

// lateDriver lists what a process held until it was asked so many times after its end.
type lateDriver struct {
	pid   atomic.Int64
	late  int32
	asked atomic.Int32
}

func (d *lateDriver) ProcessMemory(string) (map[int]uint64, error) {
	pid := int(d.pid.Load())
	if pid == 0 || syscall.Kill(pid, 0) == nil || d.asked.Add(1) > d.late {
		return nil, nil
	}
	return map[int]uint64{pid: 3 << 30}, nil
}

func TestWatch_TheNextProcessStartsWhenTheMemoryIsBack(t *testing.T) {
	for name, late := range map[string]int32{"at once": 0, "late": 4, "never": math.MaxInt32} {
		t.Run(name, func(t *testing.T) {
			driver := &lateDriver{late: late}
			b := newWorkbench(t, driver)
			if name == "never" {
				b.patience = 20 * time.Millisecond
			}
			s := b.slot("GPU-1", 0)
			got, err := run(s, b.task("leak"), 1)
			require.NoError(t, err)
			pid, err := strconv.Atoi(string(got[0].Value))
			require.NoError(t, err)
			driver.pid.Store(int64(pid))
			require.NoError(t, s.Clear(t.Context()))
			lines := b.log.FilterMessageSnippet("3GiB of device memory are not back").Len()
			if name == "never" {
				require.Equal(t, 1, lines)
			} else {
				require.Zero(t, lines)
				require.Equal(t, late+1, driver.asked.Load(), "asked until it is back, and not again")
			}
			_, err = run(s, b.task("leak"), 1)
			require.NoError(t, err)
		})
	}
}

type silent struct{}

func (silent) ProcessMemory(string) (map[int]uint64, error) { return nil, errors.ErrUnsupported }
