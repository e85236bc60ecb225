package slot_test

import (
	"context"
	"fmt"
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

// The process can change the file of its output. That costs lines of output at most.
func TestSlot_OutputThatTheTaskCutsShort(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cut", "shell", "huge"} {
		for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
			t.Run(fmt.Sprintf("%s/%s", how, mode), func(t *testing.T) {
				t.Parallel()
				s := newStand(t, mode)
				task := s.task("item")
				task.Python = "output.py:item"
				got, err := s.run(task, slot.Call{Work: work(object{"i": 0}, object{"i": 1, "how": how}, object{"i": 2},
					object{"i": 3, "how": how, "end": true}, object{"i": 4})})
				require.Equal(t, []int{0, 1, 2}, numbers(t, got))
				f := fault(t, err)
				require.Equal(t, gpumux.FaultCrash, f.Kind)
				if mode == gpumux.ModeFresh {
					// An item's output is read when it ends, and holds nothing of another item.
					for i, d := range got {
						require.True(t, strings.HasSuffix(d.Printed, fmt.Sprintf("the end of %d\n", i)))
						require.Less(t, len(d.Printed), 20<<10)
					}
					require.True(t, strings.HasSuffix(f.Tail, "the end of 3\n"))
				}
				s.works()
			})
		}
	}
}

// Output while no item runs costs no memory either.
func TestSlot_EndlessOutputWhileNoItemRuns(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		rig.Because(t, rig.Linux, "no other takes back a part of a file")
	}
	for _, when := range []string{"import", "idle"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			task := s.task("item", "FLOODS", when)
			task.Python = "output.py:item"
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- s.Run(ctx, task, slot.Call{Work: work(object{"i": 0})})
			}()
			if when == "idle" {
				require.NoError(t, <-ended)
			}
			require.Eventually(t, func() bool {
				text, _ := os.ReadFile(s.log)
				pid, _, _ := strings.Cut(string(text), "\n")
				file, err := os.Stat("/proc/" + pid + "/fd/1")
				return err == nil && file.Size() > 32<<20 && file.Sys().(*syscall.Stat_t).Blocks*512 < file.Size()/4
			}, time.Minute, time.Millisecond)
			if when == "import" {
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
			}
		})
	}
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

// A thread may print after its item has returned. At worst this text is in the next
// item's output.
func TestSlot_AThreadThatPrintsAfterItsItem(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	gate := s.log + ".gate"
	got, err := s.run(s.task("late"), slot.Call{Work: work(gate)})
	require.NoError(t, err)
	require.Empty(t, got[0].Printed)
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.Eventually(t, func() bool { _, err := os.Stat(gate + ".said"); return err == nil }, time.Minute, time.Millisecond)
	got, err = s.run(s.task("late"), slot.Call{Work: work(nil, nil)})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "from the item before\n", got[0].Printed)
	require.Empty(t, got[1].Printed)
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
