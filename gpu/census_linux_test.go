package gpu

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

func pids(t *Tree) (out []int) {
	if t == nil {
		return nil
	}
	for pid := range t.Resident {
		out = append(out, pid)
	}
	return out
}

func TestCensus_FollowsDescendantsThatAreOrphaned(t *testing.T) {
	c := NewCensus()
	cmd := exec.Command("sh", "-c", "sleep 0.2; sleep 600 & sleep 0.2; setsid sleep 600 & sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	root := cmd.Process.Pid
	c.Follow(root)
	defer func() {
		for _, pid := range pids(c.Tree(root)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	rig.Wait(t, func() bool {
		require.NoError(t, c.Round())
		return len(c.Tree(root).Resident) == 4
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.NoError(t, c.Round())
	require.Len(t, c.Tree(root).Resident, 3, "the children of a dead root still belong to it")
	require.Positive(t, c.Tree(root).Sum())
	left := pids(c.Tree(root))
	c.Forget(root)
	require.Nil(t, c.Tree(root))
	require.NoError(t, c.Round())
	for _, pid := range left {
		require.Zero(t, c.roots[pid])
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

func TestResident_OfProcessesThatAreThere(t *testing.T) {
	require.Positive(t, ResidentMemory(os.Getpid()))
	require.LessOrEqual(t, ProportionalMemory(os.Getpid()), ResidentMemory(os.Getpid())+8<<20)
	require.Zero(t, ResidentMemory(1<<30)+ProportionalMemory(1<<30))
}
