package sharing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

const uuid = "GPU-00000000-0000-0000-0000-000000000000"

var device = gpu.Device{Kind: gpu.KindGPU, UUID: uuid, Memory: 16 << 30}

// onMachine is a host whose driver is imitated, with clients for it.
func onMachine(t *testing.T) (*Host, gputest.MPSHost) {
	t.Helper()
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}}})
	t.Setenv("PATH", m.Folder+":"+os.Getenv("PATH"))
	for _, name := range []string{mps.PipeVariable, mps.LimitVariable, mps.ThreadsVariable} {
		t.Setenv(name, "")
	}
	folder, err := os.MkdirTemp("", "m") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	t.Setenv("TMPDIR", folder)
	h := &Host{Log: zap.NewNop()}
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h, gputest.MPSHost{Device: uuid, Python: os.Getenv("GPUMUX_TEST_PYTHON"), Env: m.Env()}
}

// member is a slot whose process is a client.
type member struct {
	*gputest.MPSClient
	ended atomic.Int32
}

func (m *member) Recycle(context.Context, string) error {
	m.Kill()
	m.ended.Add(1)
	return nil
}

// members are slots on a share, with their processes.
func members(t *testing.T, clients gputest.MPSHost, s Share, n int) (list []*member) {
	t.Helper()
	for range n {
		c, answer := clients.Join(t, mps.Daemon{Pipe: s.Env(0, false)[mps.PipeVariable]})
		require.Equal(t, "done", answer)
		m := &member{MPSClient: c}
		s.Join(m)
		list = append(list, m)
	}
	return list
}

// A fault that reaches all ends every process on the device, once, and counts only
// against an item that had the device to itself.
func TestMPS_Siblings(t *testing.T) {
	h, clients := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 3, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	require.True(t, s.MPS())
	require.NoError(t, s.Await(t.Context()))
	all := members(t, clients, s, 3)
	began := time.Now()

	harmless := &gpumux.Fault{Kind: gpumux.FaultCrash, Alone: true}
	s.Siblings(t.Context(), began, false, harmless)
	require.True(t, harmless.Alone, "it reached nobody else")

	require.Equal(t, "running", all[0].Say("illegal"))
	require.Equal(t, "error 700", all[0].Hear())
	require.Equal(t, "error 700", all[1].Say("free"), "which tells nobody who did it")
	did := &gpumux.Fault{Kind: gpumux.FaultCrash, Wide: true, Alone: true}
	s.Siblings(t.Context(), began, false, did)
	require.False(t, did.Alone)
	require.Contains(t, did.Hint, "runs again with the device to itself")
	for i, m := range all {
		require.EqualValues(t, 1, m.ended.Load(), i)
	}
	repeated := &gpumux.Fault{Kind: gpumux.FaultCrash, Wide: true, Alone: true}
	s.Siblings(t.Context(), began, false, repeated)
	require.False(t, repeated.Alone)
	require.EqualValues(t, 1, all[2].ended.Load(), "the new processes stay")
	require.NoError(t, s.Await(t.Context()), "another daemon")
	members(t, clients, s, 1)

	alone := &gpumux.Fault{Kind: gpumux.FaultCrash, Wide: true, Alone: true}
	s.Siblings(t.Context(), time.Now(), true, alone)
	require.True(t, alone.Alone)
	require.EqualValues(t, 2, all[2].ended.Load())

	gone := &gpumux.Fault{Kind: gpumux.FaultCrash, Wide: true, Blameless: true, Suspect: true}
	s.Siblings(t.Context(), time.Now(), false, gone)
	require.False(t, gone.Suspect, "a server that is gone is no sign of a sick device")
	lost := &gpumux.Fault{Kind: gpumux.FaultDeviceLost, Wide: true, Blameless: true, Suspect: true}
	s.Siblings(t.Context(), time.Now(), false, lost)
	require.True(t, lost.Suspect, "the device is looked at")
}

func TestMPS_DaemonsEndWithTheHost(t *testing.T) {
	h, clients := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	d := mps.Daemon{Pipe: s.Env(0, false)[mps.PipeVariable]}
	info, err := os.Stat(d.Pipe)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	members(t, clients, s, 1)[0].Kill()
	servers, err := gputest.MPSServers(t.Context(), d)
	require.NoError(t, err)
	require.Len(t, servers, 1)
	require.NoError(t, h.Close())
	require.NoDirExists(t, filepath.Dir(filepath.Dir(d.Pipe)))
	rig.Wait(t, func() bool { return !gputest.Runs(servers[0]) }, time.Minute, time.Millisecond)
}

func TestMPS_Limits(t *testing.T) {
	h, _ := onMachine(t)
	u := Use{Slots: 4, PerSlot: 1, Devices: []gpu.Device{device}}
	s, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	env := s.Env(4<<30, false)
	require.Equal(t, "0=4096M", env[mps.LimitVariable])
	require.Equal(t, "50", env[mps.ThreadsVariable])
	env = s.Env(16<<30, true)
	require.Equal(t, "0=16384M", env[mps.LimitVariable])
	require.NotContains(t, env, mps.ThreadsVariable, "it has the device to itself")
	require.NotContains(t, s.Env(0, false), mps.LimitVariable)

}

func TestMPS_ThreadsPerSlot(t *testing.T) {
	for slots, want := range map[int]int{1: 100, 2: 100, 3: 67, 4: 50, 7: 29, 48: 4} {
		require.Equal(t, want, share(Use{Slots: slots}), slots)
	}
	require.EqualValues(t, 100, share(Use{Slots: 16, Auto: true}), "the number is still to be found")
}

// A daemon that is there serves, what it was told holds, and it lives on.
func TestMPS_ADaemonThatIsThere(t *testing.T) {
	h, clients := onMachine(t)
	d := clients.Start(t)
	t.Setenv(mps.PipeVariable, d.Pipe)
	t.Setenv(mps.LimitVariable, "0=3G")
	t.Setenv(mps.ThreadsVariable, "40")
	u := Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}}
	s, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	require.Equal(t, map[string]string{mps.PipeVariable: d.Pipe, mps.LimitVariable: "0=3G", mps.ThreadsVariable: "40"}, s.Env(0, false))
	require.Equal(t, "0=2048M", s.Env(2<<30, false)[mps.LimitVariable])
	others, err := Default.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	require.Equal(t, s.Env(0, false), others.Env(0, false))
	require.NoError(t, h.Close())
	_, err = gputest.MPSServers(t.Context(), d.Daemon)
	require.NoError(t, err)
}

// CUDA passes over what a daemon leaves that was killed, so the worker starts its own.
func TestMPS_LeftoversOfADaemon(t *testing.T) {
	h, clients := onMachine(t)
	d := clients.Start(t)
	pid, err := os.ReadFile(filepath.Join(d.Pipe, mps.Program+".pid"))
	require.NoError(t, err)
	n, err := strconv.Atoi(string(pid))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
	rig.Wait(t, func() bool { return !gputest.Runs(n) }, time.Minute, time.Millisecond)
	require.FileExists(t, filepath.Join(d.Pipe, "control"))
	t.Setenv(mps.PipeVariable, d.Pipe)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	require.NotEqual(t, d.Pipe, s.Env(0, false)[mps.PipeVariable])
	members(t, clients, s, 1)
}

func TestMPS_ADaemonThatCannotStart(t *testing.T) {
	h, _ := onMachine(t)
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, mps.Program), []byte("#!/bin/sh\necho 'no GPU for you'\nexit 1\n"), 0o755))
	t.Setenv("PATH", broken+":/usr/bin:/bin")
	_, err := MPS.Prepare(t.Context(), h, Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
	require.ErrorContains(t, err, "nvidia-cuda-mps-control ended (exit status 1): no GPU for you")
}

// Without its daemon CUDA would run processes beside it and without limits, so calls go
// elsewhere until it is there again.
func TestMPS_ADaemonThatCannotBeStartedAgain(t *testing.T) {
	h, on := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	started, path := s.(clients).server, os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	started.process.Signal(syscall.SIGKILL)
	var fault *gpumux.Fault
	rig.Wait(t, func() bool {
		return errors.As(s.Await(t.Context()), &fault)
	}, time.Minute, time.Millisecond)
	require.Equal(t, gpumux.FaultDeviceLost, fault.Kind)
	require.True(t, fault.Blameless)
	require.Equal(t, uuid, fault.Device)
	t.Setenv("PATH", path)
	require.NoError(t, s.Await(t.Context()))
	members(t, on, s, 1)
}
