package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestSlot_DescendantsDieWithTheProcess(t *testing.T) {
	for _, how := range []string{"return", "die", "hang"} {
		t.Run(how, func(t *testing.T) {
			s, dir := newSlot(t), folder(t)
			file := filepath.Join(dir, how)
			_, err := run(t, s, python(dir, "family"), slot.Call{Call: calls.Call{Mode: gpumux.ModeFresh, Timeout: time.Second}, Work: work(file)})
			require.Equal(t, how == "return", err == nil)
			for _, pid := range pidsIn(t, file) {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d lives", pid)
			}
		})
	}
}

func pidsIn(t *testing.T, file string) []int {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func TestSlot_CancellationReachesTheProcess(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	file := filepath.Join(dir, "hang")
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, python(dir, "family"), slot.Call{Work: work(file)})
	}()
	require.Eventually(t, func() bool { data, _ := os.ReadFile(file); return len(data) > 0 }, time.Minute, time.Millisecond)
	cancel(why)
	require.ErrorIs(t, <-ended, why)
	for _, pid := range pidsIn(t, file) {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	require.Equal(t, slot.Vacant, s.State())
}

func TestSlot_StopEndsARunningCall(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	ended := make(chan error)
	go func() {
		ended <- s.Run(context.Background(), python(dir, "hang"), slot.Call{Work: work("long")})
	}()
	require.Eventually(t, func() bool { return s.State() == slot.Busy }, time.Minute, time.Millisecond)
	require.NoError(t, s.Stop(context.Background()))
	require.ErrorIs(t, <-ended, slot.ErrStopped)
	require.ErrorIs(t, s.Run(context.Background(), launch.Task{}, slot.Call{}), slot.ErrStopped)
}

// doomed is a worker that runs a family of processes until the test kills it.
func doomed() {
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: os.Getenv("RUNTIME")})
	task := launch.Task{Name: "family", Python: "tasks.py:family", Dir: os.Getenv("DIR")}
	item, _ := json.Marshal(os.Getenv("DIR") + "/hang")
	fmt.Println("running")
	err := s.Run(context.Background(), task, slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
		yield(calls.Item{Value: item}, nil)
	}}})
	fmt.Println(err)
	os.Exit(1)
}

func TestSlot_NothingOutlivesAKilledWorker(t *testing.T) {
	dir := folder(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM=worker", "DIR="+dir, "RUNTIME="+runtimePath(t))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	file := filepath.Join(dir, "hang")
	require.Eventually(t, func() bool { data, _ := os.ReadFile(file); return len(strings.Fields(string(data))) == 3 }, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	io.Copy(io.Discard, out)
	cmd.Wait()
	for _, pid := range pidsIn(t, file) {
		require.Eventually(t, func() bool { return gone(pid) }, time.Minute, time.Millisecond, "process %d lives on", pid)
	}
}

// gone reports whether a process has ended, reaped or not. The system decides who reaps
// an orphan.
func gone(pid int) bool {
	return strings.Contains("ZX", state(fmt.Sprintf("/proc/%d", pid)))
}

// state returns the letter for the state of a process, given as its folder in /proc. It
// is empty when the process is gone.
func state(process string) string {
	stat, _ := os.ReadFile(filepath.Join(process, "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:min(1, len(rest))]
}
