package gpu

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// family starts a shell that leads a group, with a child in it, a grandchild, and one
// that leaves the group and is orphaned; it returns their numbers in that order.
func family(t *testing.T) (root int, all []int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `sleep 600 & echo $!
sh -c 'sleep 600 & echo $!; wait' &
echo $!
sh -c 'sleep 0.3; setsid sleep 600 & echo $!' &
wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	root, all = cmd.Process.Pid, []int{cmd.Process.Pid}
	lines := bufio.NewScanner(out)
	for len(all) < 5 && lines.Scan() {
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		require.NoError(t, err)
		all = append(all, pid)
	}
	t.Cleanup(func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = cmd.Wait()
	})
	return root, all
}

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

func TestCensus_FindsWhoWasThereBefore(t *testing.T) {
	root, all := family(t)
	c := NewCensus()
	c.Follow(root)
	require.NoError(t, c.Round())
	require.Subset(t, pids(c.Tree(root)), all[:4])
	require.NotContains(t, pids(c.Tree(root)), os.Getpid())
}

func TestResident_OfProcessesThatAreThere(t *testing.T) {
	require.Positive(t, ResidentMemory(os.Getpid()))
	require.LessOrEqual(t, ProportionalMemory(os.Getpid()), ResidentMemory(os.Getpid())+8<<20)
	require.Zero(t, ResidentMemory(1<<30)+ProportionalMemory(1<<30))
}

func BenchmarkCensus_Round(b *testing.B) {
	c := NewCensus()
	c.Follow(os.Getpid())
	for b.Loop() {
		if err := c.Round(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(c.roots)), "processes")
}
