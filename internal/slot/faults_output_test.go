package slot_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

func TestSlot_AHugeResultArrivesWhole(t *testing.T) {
	const size = 200 << 20
	s := newStand(t, gpumux.ModePersistent)
	got, err := s.run(s.task("big"), slot.Call{Work: work(3, size, 2)})
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Equal(t, `"xxx"`, string(got[0].Value))
	require.Len(t, got[1].Value, size+2)
	require.Equal(t, `"xx"`, string(got[2].Value))
	s.works()
}

func TestSlot_EndlessOutputCostsNoMemory(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	_, err := s.run(s.task("flood"), slot.Call{Call: calls.Call{Timeout: 2 * time.Second}, Work: work(0, 1)})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultTimeout, f.Kind)
	require.LessOrEqual(t, len(f.Tail), 16<<10)
	require.Contains(t, f.Tail, "endless endless")
	s.works()
}

// Another process may hold a command's standard output and live on. Nobody waits for it,
// and the output is whole.
func TestSlot_ACommandWhoseOutputSomebodyHolds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "holder")
	holder, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	defer holder.Close()
	go func() {
		for {
			taker, err := holder.AcceptUnix()
			if err != nil {
				return
			}
			_, _, _, _, _ = taker.ReadMsgUnix(make([]byte, 1), make([]byte, syscall.CmsgSpace(4))) // now this process has the descriptor
		}
	}()
	s := newStand(t, gpumux.ModeFresh)
	const size = 300_000 // more than is in the pipe at once
	task := launch.Task{Name: "gives", Command: []string{"python3", "-c", `
import os, socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.connect(sys.argv[1])
socket.send_fds(wire, [b"."], [1])
sys.stdout.write('"' + "x" * int(sys.argv[2]) + '"')
`, path, strconv.Itoa(size)}}
	got, err := s.run(task, slot.Call{Work: work(0, 1, 2)})
	require.NoError(t, err)
	require.Len(t, got, 3)
	for _, d := range got {
		require.Nil(t, d.Fault)
		require.Len(t, d.Value, size+2)
	}
}

func TestSlot_ACommandsResultMustBeUTF8(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModeFresh)
	task := launch.Task{Name: "c", Command: []string{"printf", `"\377"`}}
	got, err := s.run(task, slot.Call{Work: work(0)})
	require.NoError(t, err)
	require.NotNil(t, got[0].Fault, "%q", got[0].Value)
	require.Contains(t, got[0].Fault.Message, "no JSON value")
	task.Text = true
	got, err = s.run(task, slot.Call{Work: work(0)})
	require.NoError(t, err)
	require.Equal(t, `"\"`+"\uFFFD"+`\""`, strings.ReplaceAll(string(got[0].Value), `\ufffd`, "\uFFFD"))
}

func TestSlot_AHangTellsItsStack(t *testing.T) {
	t.Parallel()
	for _, fresh := range []launch.Fresh{launch.Fork, launch.Spawn, ""} {
		t.Run(string(fresh), func(t *testing.T) {
			t.Parallel()
			mode := gpumux.ModeFresh
			if fresh == "" {
				mode = gpumux.ModePersistent
			}
			s := newStand(t, mode)
			s.fresh = fresh
			got, err := s.run(s.task("item"), slot.Call{Call: calls.Call{Timeout: patience}, Work: work(object{"i": 0}, object{"i": 1, "end": "hang"})})
			require.Len(t, got, 1)
			f := fault(t, err)
			require.Equal(t, gpumux.FaultTimeout, f.Kind)
			require.Regexp(t, `(?s)most recent call first.*faults\.py", line \d+ in \S*.*faults\.py", line \d+ in item`, f.Traceback)
			require.NotContains(t, f.Tail, "most recent call first", "it is no output of the task")
			require.Contains(t, f.Tail, "last words of hang")
		})
	}
}

// What a process leaves in the worker is gone when its slot has the next process.
func TestSlot_FaultsLeakNothing(t *testing.T) {
	s := newStand(t, gpumux.ModePersistent)
	s.works()
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	goroutines, descriptors := runtime.NumGoroutine(), files()
	for _, how := range []string{"kill", "memory", "garbage", "exit0", "hang"} {
		for range 4 {
			_, err := s.run(s.task("item"), slot.Call{Call: calls.Call{Timeout: patience / 4}, Work: work(object{"i": 0}, object{"i": 1, "end": how})})
			require.Error(t, err)
		}
	}
	s.works()
	rig.Wait(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 && files() <= descriptors+2 },
		time.Minute, 5*time.Millisecond, "%d goroutines and %d descriptors before", goroutines, descriptors)
}
