package sharing

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	ended atomic.Bool
}

func (m *member) PID() int { return m.MPSClient.PID }

func (m *member) Recycle(context.Context, string) error {
	m.Kill()
	m.ended.Store(true)
	return nil
}

// members are slots on a share, with their processes.
func members(t *testing.T, clients gputest.MPSHost, s Share, n int) (list []*member) {
	t.Helper()
	for range n {
		c, said := clients.Join(t, mps.Daemon{Pipe: s.Env(0, false)[mps.PipeVariable]})
		require.Equal(t, "done", said)
		m := &member{MPSClient: c}
		s.Join(m)
		list = append(list, m)
	}
	return list
}

// A fault of one is the fault of all, idle ones included, and costs nobody an attempt but
// who did it.
func TestMPS_Siblings(t *testing.T) {
	h, clients := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 3, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	require.True(t, s.MPS())
	for round := range 2 {
		turn, err := s.Await(t.Context())
		require.NoError(t, err)
		require.Equal(t, round, turn)
		all := members(t, clients, s, 3)
		culprit, sibling, idle := all[0], all[1], all[2]

		own := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: sibling.MPSClient.PID}
		s.Siblings(t.Context(), turn, own)
		require.False(t, own.Blameless, "the server is well, so it is its own")

		require.Equal(t, "running", culprit.Say("illegal"))
		require.Equal(t, "error 700", culprit.Hear())
		require.Equal(t, "error 700", sibling.Say("free"), "which tells nobody who did it")
		// In the second round the processes die without a word, and the server's state tells.
		told := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: sibling.MPSClient.PID, Wide: round == 0, Suspect: true}
		s.Siblings(t.Context(), turn, told)
		require.True(t, told.Blameless)
		require.False(t, told.Suspect)
		did := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: culprit.MPSClient.PID, Wide: round == 0}
		s.Siblings(t.Context(), turn, did)
		require.False(t, did.Blameless)
		ended := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: idle.MPSClient.PID, Blameless: true}
		s.Siblings(t.Context(), turn, ended)
		require.True(t, ended.Blameless)

		_, err = s.Await(t.Context())
		require.NoError(t, err)
		for i, m := range all {
			require.True(t, m.ended.Load(), i)
		}
	}
}

// Where the log names nobody, it was who told of it first.
func TestMPS_TheFirstIsBlamedWhereTheLogIsSilent(t *testing.T) {
	h, _ := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	first, second := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: 7, Wide: true}, &gpumux.Fault{Kind: gpumux.FaultCrash, PID: 8, Wide: true}
	s.Siblings(t.Context(), 0, first)
	s.Siblings(t.Context(), 0, second)
	require.False(t, first.Blameless)
	require.True(t, second.Blameless)
	turn, err := s.Await(t.Context())
	require.NoError(t, err)

	gone := &gpumux.Fault{Kind: gpumux.FaultCrash, PID: 9, Wide: true, Blameless: true, Suspect: true}
	s.Siblings(t.Context(), turn, gone)
	require.True(t, gone.Blameless, "a server that is gone is no item's fault")
	require.False(t, gone.Suspect, "nor the device's")
	turn, err = s.Await(t.Context())
	require.NoError(t, err)
	lost := &gpumux.Fault{Kind: gpumux.FaultDeviceLost, PID: 10, Wide: true, Blameless: true, Suspect: true}
	s.Siblings(t.Context(), turn, lost)
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
	servers, err := d.Servers(t.Context())
	require.NoError(t, err)
	require.Len(t, servers, 1)
	require.NoError(t, h.Close())
	require.NoDirExists(t, filepath.Dir(filepath.Dir(d.Pipe)))
	rig.Wait(t, func() bool { return !gputest.Runs(servers[0]) }, time.Minute, time.Millisecond)
}

func TestMPS_Limits(t *testing.T) {
	h, clients := onMachine(t)
	u := Use{Slots: 4, PerSlot: 1, Memory: 4 << 30, Devices: []gpu.Device{device}}
	h.Probe = func(_ context.Context, id string, env map[string]string) (uint64, string) {
		require.Equal(t, uuid, id)
		c, said := clients.Join(t, mps.Daemon{Pipe: env[mps.PipeVariable]}, mps.LimitVariable+"="+env[mps.LimitVariable])
		require.Equal(t, "done", said)
		free, _ := c.Free()
		return free, ""
	}
	s, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	env := s.Env(4<<30, false)
	require.Equal(t, "0=4096M", env[mps.LimitVariable])
	require.Equal(t, "50", env[mps.ThreadsVariable])
	env = s.Env(16<<30, true)
	require.Equal(t, "0=16384M", env[mps.LimitVariable])
	require.NotContains(t, env, mps.ThreadsVariable, "it has the device to itself")
	require.NotContains(t, s.Env(0, false), mps.LimitVariable)

	h.Probe = func(context.Context, string, map[string]string) (uint64, string) { return 15 << 30, "" }
	_, err = MPS.Prepare(t.Context(), h, u)
	require.ErrorContains(t, err, "the limit of 4GiB per process is not in force, since CUDA gave one 15GiB; ")
	h.Probe = func(context.Context, string, map[string]string) (uint64, string) { return 0, "no Python" }
	_, err = MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
}

func TestMPS_ThreadsPerSlot(t *testing.T) {
	for slots, want := range map[int]Percent{1: 100, 2: 100, 3: 67, 4: 50, 7: 29, 48: 4} {
		require.Equal(t, want, share(Use{Slots: slots}), slots)
	}
	require.EqualValues(t, 100, share(Use{Slots: 16, Auto: true}), "the number is still to be found")
	for text, want := range map[string]Percent{"50%": 50, "7": 7, "100 %": 100} {
		var p Percent
		require.NoError(t, p.UnmarshalText([]byte(text)))
		require.Equal(t, want, p)
	}
	for _, text := range []string{"0%", "101%", "half", "0.5", ""} {
		var p Percent
		require.ErrorContains(t, p.UnmarshalText([]byte(text)), "write 1% to 100%", text)
	}
}

// A daemon that is there serves, what it was told holds, and it lives on.
func TestMPS_ADaemonThatIsThere(t *testing.T) {
	h, clients := onMachine(t)
	d := clients.Start(t)
	t.Setenv(mps.PipeVariable, d.Pipe)
	t.Setenv(mps.LimitVariable, "0=3G,GPU-other=1G")
	t.Setenv(mps.ThreadsVariable, "40")
	u := Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}}
	s, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	require.Equal(t, map[string]string{mps.PipeVariable: d.Pipe, mps.LimitVariable: "0=3072M", mps.ThreadsVariable: "40"}, s.Env(0, false))
	require.Equal(t, "0=2048M", s.Env(2<<30, false)[mps.LimitVariable])
	require.Equal(t, "0=3072M", s.Env(4<<30, false)[mps.LimitVariable], "a client can only lower it")
	others, err := Default.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	require.Equal(t, s.Env(0, false), others.Env(0, false))
	require.NoError(t, h.Close())
	_, err = d.Servers(t.Context())
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

// A daemon may answer its own user alone and still serve this one.
func TestMPS_ADaemonThatDoesNotAnswer(t *testing.T) {
	h, clients := onMachine(t)
	d := clients.Start(t)
	t.Setenv(mps.PipeVariable, d.Pipe)
	deaf := t.TempDir()
	const nobody = "#!/bin/sh\necho Cannot find MPS control daemon process\nexit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(deaf, mps.Program), []byte(nobody), 0o755))
	path := os.Getenv("PATH")
	t.Setenv("PATH", deaf+":"+path)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	t.Setenv("PATH", path)
	require.Equal(t, d.Pipe, s.Env(0, false)[mps.PipeVariable])
	members(t, clients, s, 1)
}

func TestMPS_PathsTooLongForSockets(t *testing.T) {
	h, clients := onMachine(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	require.LessOrEqual(t, len(s.Env(0, false)[mps.PipeVariable]), mps.LongestPipe)
	members(t, clients, s, 1)
}

func TestMPS_AFolderThatCannotBeMade(t *testing.T) {
	h, _ := onMachine(t)
	t.Setenv("TMPDIR", "/nonexistent")
	_, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.ErrorContains(t, err, "make a folder for MPS daemons: ")
	require.ErrorContains(t, err, "; let TMPDIR name one of at most ")
}

// What is killed in the middle of a kernel, by the system or by the worker, spoils the
// server, which then stays in fault.
func TestMPS_AServerThatDoesNotComeBack(t *testing.T) {
	for _, kind := range []gpumux.FaultKind{gpumux.FaultHostOOM, gpumux.FaultTimeout} {
		t.Run(string(kind), func(t *testing.T) { killedInAKernel(t, kind) })
	}
}

func killedInAKernel(t *testing.T, kind gpumux.FaultKind) {
	h, clients := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	turn, err := s.Await(t.Context())
	require.NoError(t, err)
	all := members(t, clients, s, 2)
	require.Equal(t, "running", all[0].Say("spin"))
	d := mps.Daemon{Pipe: s.Env(0, false)[mps.PipeVariable]}
	all[0].Kill()
	rig.Wait(t, func() bool {
		ready, err := d.Ready(t.Context())
		return err == nil && !ready
	}, time.Minute, 10*time.Millisecond)
	s.Siblings(t.Context(), turn, &gpumux.Fault{Kind: kind, PID: all[0].MPSClient.PID})
	_, err = s.Await(t.Context())
	require.NoError(t, err)
	require.True(t, all[1].ended.Load())
	members(t, clients, s, 2)
}

// The numbers of a daemon in another container are those of strangers here.
func TestMPS_ADaemonElsewhereIsNotToldToEndProcesses(t *testing.T) {
	h, clients := onMachine(t)
	d := clients.Start(t)
	t.Setenv(mps.PipeVariable, d.Pipe)
	u := Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}}
	c, said := clients.Join(t, d.Daemon)
	require.Equal(t, "done", said)
	require.NoError(t, os.WriteFile(filepath.Join(d.Pipe, mps.Program+".pid"), []byte("1\n"), 0o600))
	far, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	far.End(func(pid int) bool { return pid == c.PID })
	require.Equal(t, "done", c.Say("alloc 1024"))

	near := clients.Start(t)
	t.Setenv(mps.PipeVariable, near.Pipe)
	c, said = clients.Join(t, near.Daemon)
	require.Equal(t, "done", said)
	s, err := MPS.Prepare(t.Context(), h, u)
	require.NoError(t, err)
	s.End(func(pid int) bool { return pid == c.PID })
	require.Equal(t, "error 810", c.Say("alloc 1024"))
}

func TestMPS_ADaemonThatCannotStart(t *testing.T) {
	h, _ := onMachine(t)
	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, mps.Program), []byte("#!/bin/sh\necho 'no GPU for you'\nexit 1\n"), 0o755))
	t.Setenv("PATH", broken+":/usr/bin:/bin")
	_, err := MPS.Prepare(t.Context(), h, Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
	require.ErrorContains(t, err, "nvidia-cuda-mps-control ended (exit status 1): no GPU for you")
}

// Asking it for each of many processes would hold up what it waits for.
func TestMPS_AServerThatHasFailedIsNotAskedToLetGo(t *testing.T) {
	h, _ := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 2, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	folder, path := t.TempDir(), os.Getenv("PATH")
	asked := filepath.Join(folder, "asked")
	require.NoError(t, os.WriteFile(filepath.Join(folder, mps.Program), []byte("#!/bin/sh\n: > "+asked+"\n"), 0o755))
	t.Setenv("PATH", folder+":"+path)
	own, failed := s.(clients).server, &failure{done: make(chan struct{})}
	own.last = failed
	s.End(func(int) bool { return true })
	require.NoFileExists(t, asked)
	close(failed.done)
	s.End(func(int) bool { return true })
	require.FileExists(t, asked)
	t.Setenv("PATH", path)
}

// Without its daemon CUDA would run processes beside it and without limits, so calls go
// elsewhere until it is there again.
func TestMPS_ADaemonThatCannotBeStartedAgain(t *testing.T) {
	h, on := onMachine(t)
	s, err := MPS.Prepare(t.Context(), h, Use{Slots: 1, PerSlot: 1, Devices: []gpu.Device{device}})
	require.NoError(t, err)
	own, path := s.(clients).server, os.Getenv("PATH")
	own.mu.Lock()
	own.patience = time.Millisecond
	own.mu.Unlock()
	t.Setenv("PATH", t.TempDir())
	own.process.Signal(syscall.SIGKILL)
	var fault *gpumux.Fault
	rig.Wait(t, func() bool {
		_, err := s.Await(t.Context())
		return errors.As(err, &fault)
	}, time.Minute, time.Millisecond)
	require.Equal(t, gpumux.FaultDeviceLost, fault.Kind)
	require.True(t, fault.Blameless)
	require.Equal(t, uuid, fault.Device)
	t.Setenv("PATH", path)
	rig.Wait(t, func() bool {
		_, err := s.Await(t.Context())
		return err == nil
	}, time.Minute, time.Millisecond)
	members(t, on, s, 1)
}
