package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// fenced is a worker that is stopped while its task runs, beside which a process sits idle. It says what it sees, a line each.
func fenced() {
	var task slot.Task
	if err := json.Unmarshal([]byte(os.Getenv("TASK")), &task); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fence := slot.NewFence(nil)
	var mu sync.Mutex
	const lease = 3 * time.Second
	deadline, lapsed := slot.Uptime()+lease, false
	held := func() error {
		mu.Lock()
		defer mu.Unlock()
		if lapsed = lapsed || slot.Uptime() > deadline; lapsed {
			return fmt.Errorf("stopped: %w", slot.ErrLapsed)
		}
		return nil
	}
	renew := func() {
		if held() == nil {
			mu.Lock()
			deadline = slot.Uptime() + lease
			// A moment later, as a worker does: the fence may be early by the grain of its clock.
			fmt.Fprint(os.Stderr, or(fence.Hold(deadline+500*time.Millisecond)))
			mu.Unlock()
		}
	}
	renew()
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			renew()
		}
	}()
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: os.Getenv("RUNTIME"), Fence: fence})
	idle := slot.New(slot.Options{Name: "cpu/1", Device: "CPU", Runtime: os.Getenv("RUNTIME"), Fence: fence})
	fmt.Println("idle", or(idle.Run(context.Background(), slot.Call{Task: task, Items: values("nothing"), Done: func(slot.Done) {}})))
	done := 0
	call := slot.Call{Task: task, Items: values("fork", "clear", "hang"), Held: held, Done: func(slot.Done) {
		if done++; done == 2 {
			fmt.Println("running")
		}
	}}
	err := s.Run(context.Background(), call)
	var fault *gpumux.Fault
	fmt.Println("ended", errors.Is(err, slot.ErrLapsed), errors.As(err, &fault))
	if err := fence.Hold(slot.Uptime() + time.Minute); err != nil {
		fmt.Println(err)
	}
	for _, each := range []*slot.Slot{s, idle} {
		call := slot.Call{Task: task, Items: values("nothing", "nothing"), Done: func(slot.Done) { fmt.Println("again") }}
		fmt.Println("served", or(each.Run(context.Background(), call)))
	}
	fmt.Println("freed", or(fence.Free()))
	os.Exit(0)
}

func or(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// newFenced starts the program fenced and returns when it has four processes: its two slots' and their descendants. next is its next
// line.
func newFenced(t *testing.T) (s *stand, program *exec.Cmd, next func() string) {
	t.Helper()
	s = newStand(t, gpumux.Persistent)
	program, out := s.program("fenced", s.task("daemon"))
	lines := bufio.NewScanner(out)
	next = func() string {
		require.True(t, lines.Scan(), "the program ended")
		return strings.TrimSpace(lines.Text())
	}
	require.Equal(t, "idle", next())
	require.Equal(t, "running", next())
	require.Eventually(t, func() bool { return len(s.left()) == 4 }, time.Minute, 5*time.Millisecond)
	return s, program, next
}

// A program that is stopped cannot end what it runs; the warden does at the deadline, wherever the descendants are, and not before.
// The program sees no fault in it and goes on.
func TestFence_TaskProcessesOfAStoppedProgramEnd(t *testing.T) {
	t.Parallel()
	s, program, next := newFenced(t)
	// Longer than the deadline: while it is put off, nothing ends.
	require.Never(t, func() bool { return len(s.left()) < 4 }, 4*time.Second, 20*time.Millisecond)
	require.NoError(t, program.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return len(s.left()) == 0 }, time.Minute, 5*time.Millisecond)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", program.Process.Pid))
	require.NoError(t, err)
	require.Contains(t, string(stat), ") T ", "nobody else could have ended them")
	require.NoError(t, program.Process.Signal(syscall.SIGCONT))
	for _, want := range []string{"ended true false", "again", "again", "served", "again", "again", "served", "freed"} {
		require.Equal(t, want, next())
	}
	require.NoError(t, program.Wait())
}
