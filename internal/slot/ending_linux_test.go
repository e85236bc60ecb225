package slot_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// traced lets another program hold a process as a debugger does. Until release, nobody
// else hears of the process's end.
func traced(t *testing.T, pid string) (release func()) {
	t.Helper()
	tracer := exec.Command("python3", "-c", `
import ctypes, sys
print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
`, pid)
	in, err := tracer.StdinPipe()
	require.NoError(t, err)
	out, err := tracer.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tracer.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	release = func() {
		in.Close()
		tracer.Wait()
	}
	if line != "0\n" {
		release()
		rig.Because(t, rig.Kernel, "it lets no process hold another")
	}
	t.Cleanup(release)
	return release
}

// A process may not end after a kill, as when it hangs in a driver. The call ends all the
// same, and blames an item only for its own timeout. The slot says that it is out of
// service, and comes back by itself.
func TestSlot_AProcessThatDoesNotEndHoldsUpNoCall(t *testing.T) {
	for _, how := range []string{"exits", "is killed at its timeout", "is cancelled", "is to make room", "stops"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			core, seen := observer.New(zap.InfoLevel)
			s, dir := slot.New(slot.Options{
				Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: 10 * time.Millisecond, Log: zap.New(core),
				Patience: time.Millisecond,
			}), folder(t)
			got, err := run(t, s, python(dir, "die"), slot.Call{Work: work(1)})
			require.NoError(t, err)
			require.Len(t, got, 1)
			var pid int
			for _, each := range seen.FilterMessage("task process ready").All() {
				pid = int(each.ContextMap()["pid"].(int64))
			}
			release := traced(t, fmt.Sprint(pid))

			if how == "stops" {
				over, cancel := context.WithCancel(context.Background())
				cancel()
				require.ErrorIs(t, s.Stop(over), context.Canceled)
				require.Eventually(t, func() bool {
					return seen.FilterMessageSnippet("does not end").Len() == 1
				}, time.Minute, time.Millisecond)
				require.Equal(t, slot.Reclaiming, s.State())
				release()
				require.NoError(t, s.Stop(context.Background()))
				require.Equal(t, slot.Stopped, s.State())
				return
			}
			ended := false
			call := slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
				defer func() { ended = true }()
				for i, text := range []string{`"exit3"`, "1", "2"} {
					if !yield(calls.Item{Index: int64(i), Value: []byte(text)}, nil) {
						return
					}
				}
			}, OnDone: func(d calls.Done) { t.Errorf("item %d was done", d.Index) }}}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			switch how {
			case "is killed at its timeout":
				call.Work, call.Timeout = work("SIGCONT", 1), 50*time.Millisecond
			case "is cancelled":
				call.Work = work("SIGCONT", 1)
				time.AfterFunc(50*time.Millisecond, cancel)
			case "is to make room":
				call.Work, err = work(), s.Clear(ctx)
			}
			if how != "is to make room" {
				err = s.Run(ctx, python(dir, "die"), call)
			}
			if how == "is cancelled" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				f := fault(t, err)
				// An item is to blame only for its own timeout.
				late := how == "is killed at its timeout"
				require.Equal(t, map[bool]gpumux.FaultKind{true: gpumux.FaultTimeout, false: gpumux.FaultCrash}[late], f.Kind)
				require.Equal(t, !late, f.Blameless)
				require.Equal(t, pid, f.PID)
				require.Contains(t, f.Error(), "/proc/PID/stack")
			}
			if how == "exits" {
				require.True(t, ended, "the call's items are let go of")
			}
			require.Equal(t, slot.Reclaiming, s.State())
			require.Equal(t, 1, seen.FilterMessageSnippet("does not end").Len())

			// A call that comes meanwhile gets a fault that says so.
			_, err = run(t, s, python(dir, "die"), slot.Call{Work: work(1)})
			require.True(t, fault(t, err).Blameless)
			require.Equal(t, slot.Reclaiming, s.State())
			require.Equal(t, 1, seen.FilterMessageSnippet("does not end").Len())

			release()
			require.Eventually(t, func() bool { return s.State() == slot.Vacant }, time.Minute, time.Millisecond)
			got, err = run(t, s, python(dir, "die"), slot.Call{Work: work(1)})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.NoError(t, s.Stop(context.Background()))
		})
	}
}

// What a process left on its board before it hung at its end comes too late for a call
// that has been told so.
func TestSlot_NoResultAfterTheEndOfACall(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zap.InfoLevel)
	s, dir := slot.New(slot.Options{
		Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: 10 * time.Millisecond, Log: zap.New(core), Patience: time.Millisecond,
	}), folder(t)
	_, err := run(t, s, python(dir, "die"), slot.Call{Work: work(1, 2, 3, 4)})
	require.NoError(t, err)
	release := traced(t, fmt.Sprint(seen.FilterMessage("task process ready").All()[0].ContextMap()["pid"]))
	var over atomic.Bool
	err = s.Run(t.Context(), python(dir, "die"), slot.Call{Work: &gputest.Work{From: gputest.Values(1, 2, 3, 4, 5, "exit3", 6), OnDone: func(d calls.Done) {
		assert.False(t, over.Load(), "item %d", d.Index)
	}}})
	over.Store(true)
	require.Error(t, err)
	release()
	require.NoError(t, s.Stop(context.Background()), "all of it is read then")
}
