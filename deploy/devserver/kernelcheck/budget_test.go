package kernelcheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wait"
)

const byKernel, byWatch = "cgroup, watch", "watch"

// The kernel ends what passes its budget before the watch can see it, and nothing else: items over it climb the ladder, the others
// keep their values, the worker lives, and nothing is left of the cgroups.
func TestKernel_EndsWhatPassesItsBudget(t *testing.T) {
	s := inMachine(t)
	home := handOver(t, box(t, ""))
	worker := s.worker(home, "slots: 2, memory: 64MiB", byKernel)
	before := kills(t, home)
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		t.Run(string(mode), func(t *testing.T) {
			list := make([]object, 12)
			for i := range list {
				list[i] = object{"mb": 1 + i}
			}
			list[3] = object{"mb": 90}                 // two budgets, as an item has alone on its device
			list[6] = object{"mb": 400}                // no budget there is
			list[8] = object{"mb": 400, "child": true} // in a family, of which no part may stay
			results := s.on(t).mapped(1, list, "--mode", string(mode))
			for i, r := range results {
				if i == 6 || i == 8 {
					continue
				}
				took(t, list[i], r)
			}
			for _, i := range []int{6, 8} {
				f := results[i].Fault
				require.NotNil(t, f, string(results[i].Value))
				t.Log(f)
				require.Equal(t, gpumux.Budget, f.Kind)
				require.Equal(t, "signal SIGKILL", f.Exit)
				require.EqualValues(t, 128*mib, f.Budget, "what both slots have together")
				require.InDelta(t, 128*mib, f.Peak, slack, "the kernel let it have no more")
				require.Contains(t, f.Error(), "128MiB")
				require.True(t, f.Alone)
			}
			require.Greater(t, kills(t, home), before, "the kernel killed, not the watch alone")
			before = kills(t, home)
			require.True(t, worker.alive())
		})
	}
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	require.Zero(t, worker.code())
	require.Empty(t, slots(t, home))
}

// With swap on the machine a budget is not passed by way of it.
func TestKernel_NoBudgetIsPassedByWayOfTheSwap(t *testing.T) {
	s := inMachine(t)
	for _, command := range [][]string{{"busybox", "mkswap", "/dev/vda"}, {"busybox", "swapon", "/dev/vda"}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("busybox", "swapoff", "/dev/vda").Run()) })
	home := handOver(t, box(t, ""))
	s.worker(home, "slots: 1, memory: 64MiB", byKernel)
	require.Positive(t, memory(t, "SwapTotal"))
	before := kills(t, home)
	list := []object{{"mb": 2}, {"mb": 300}}
	results := s.mapped(1, list)
	took(t, list[0], results[0])
	f := results[1].Fault
	require.NotNil(t, f)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.InDelta(t, 64*mib, f.Peak, slack)
	require.Greater(t, kills(t, home), before)
}

// In a cgroup that was not handed over the worker has the watch alone, and says so.
func TestKernel_WithoutDelegationTheWatchEndsIt(t *testing.T) {
	s := inMachine(t)
	home := box(t, "")
	worker := s.worker(home, "slots: 1, memory: 64MiB", byWatch)
	list := []object{{"mb": 2}, {"mb": 200, "nap": 600}}
	results := s.mapped(1, list)
	took(t, list[0], results[0])
	f := results[1].Fault
	require.NotNil(t, f)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.Greater(t, f.Peak, f.Budget)
	is, _ := killed(t, f.PID)
	require.False(t, is, "the kernel had no reason")
	require.True(t, worker.alive())
	require.Empty(t, slots(t, home))
}

// A worker that is killed cannot remove its cgroups; the next one does.
func TestKernel_AKilledWorkerLeavesNoCgroup(t *testing.T) {
	s := inMachine(t)
	home := handOver(t, box(t, ""))
	first := s.worker(home, "slots: 1, memory: 64MiB", byKernel)
	item := fmt.Sprintf("%q\n", s.path("gate"))
	s.write("gates.jsonl", item)
	running := s.reaching("\n", "", "map", "wait", "--in", "gates.jsonl", "--out", "-", "--pool", "cpu")
	wait.For(t, func() bool {
		for _, dir := range slots(t, home) {
			if data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(data) > 0 {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond, "the item runs in a cgroup")
	require.NoError(t, first.Process.Kill())
	first.code()
	left := slots(t, home)
	require.NotEmpty(t, left)

	s.worker(filepath.Join(home, "worker"), "slots: 1, memory: 64MiB", byKernel)
	for _, dir := range left {
		require.NoDirExists(t, dir)
	}
	s.write("gate", "")
	require.Zero(t, running.code(), "%s", &running.stderr)
	require.Contains(t, running.stdout.String(), "gone on")
	require.True(t, strings.HasPrefix(filepath.Base(left[0]), fmt.Sprintf("gpumux-%d-", first.Process.Pid)))
}
