package gpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain also plays the processes of the tests: GPU_TEST_HOLD makes it hold that many
// bytes, say so, and wait until its standard input ends; GPU_TEST_LIBRARY opens that library.
func TestMain(m *testing.M) {
	var n int
	if _, err := fmt.Sscan(os.Getenv("GPU_TEST_HOLD"), &n); err == nil {
		b := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			b[i] = 1
		}
		fmt.Println("holding")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(int(b[0]) - 1)
	}
	if path := os.Getenv("GPU_TEST_LIBRARY"); path != "" && playLibrary != nil {
		os.Exit(playLibrary(path))
	}
	os.Exit(m.Run())
}

// playLibrary is set where there is NVML.
var playLibrary func(path string) int

const mib = 1 << 20

// holder starts a process that holds memory, through sh so that it is a grandchild.
func holder(t *testing.T, bytes int, attr *syscall.SysProcAttr) (leader int, stop func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `"$0" & wait`, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("GPU_TEST_HOLD=%d", bytes))
	cmd.SysProcAttr = attr
	// A background job of sh reads /dev/null, so the child is given another descriptor.
	cmd.Args[2] = `"$0" <&3 & wait`
	in, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles = []*os.File{in}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holding\n", line)
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = w.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return cmd.Process.Pid, stop
}

func TestResidentTree_Grandchildren(t *testing.T) {
	pid, stop := holder(t, 64*mib, &syscall.SysProcAttr{Setpgid: true})
	got, err := ResidentTree(pid)
	require.NoError(t, err)
	require.Greater(t, got, uint64(64*mib))
	require.Less(t, got, uint64(160*mib))
	table, err := ReadProcesses()
	require.NoError(t, err)
	require.Len(t, table.Tree(pid), 2)
	require.NotContains(t, table.Tree(pid), os.Getpid())
	require.Contains(t, table.Tree(os.Getpid()), pid)
	exact := table.Proportional(pid)
	require.Greater(t, exact, uint64(64*mib))
	require.LessOrEqual(t, exact, got+16*mib)

	stop()
	require.Zero(t, table.Proportional(pid), "the kernel is asked now, not when the table was read")
	require.Eventually(t, func() bool { got, err = ResidentTree(pid); return err == nil && got == 0 }, time.Minute, time.Millisecond)
}

// An orphan whose parent died still belongs to the group that the parent led.
func TestResidentTree_OrphanOfTheGroup(t *testing.T) {
	pid, _ := holder(t, 32*mib, &syscall.SysProcAttr{Setpgid: true})
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	orphaned := func() bool {
		table, err := ReadProcesses()
		require.NoError(t, err)
		tree := table.Tree(pid)
		for _, p := range tree {
			if p != pid && table.rows[p].parent == pid {
				return false
			}
		}
		return table.Resident(pid) > 32*mib && len(tree) > 0
	}
	require.Eventually(t, orphaned, time.Minute, time.Millisecond)
}

func TestResidentTree_SharesNothingWithStrangers(t *testing.T) {
	a, _ := holder(t, 16*mib, nil) // in this test's own process group
	table, err := ReadProcesses()
	require.NoError(t, err)
	require.NotContains(t, table.Tree(a), os.Getpid(), "only a group led by the process counts")
	require.Empty(t, table.Tree(0, -1))
	require.Equal(t, table.Resident(a), table.Resident(a, a), "a process named twice counts once")
}

func TestProcessTable_Shape(t *testing.T) {
	table := newProcessTable(map[int]processRow{
		10: {parent: 1, group: 10, resident: 1},
		11: {parent: 10, group: 10, resident: 2},
		12: {parent: 11, group: 12, resident: 4},  // a descendant with a group of its own
		13: {parent: 1, group: 10, resident: 8},   // an orphan of the group
		14: {parent: 13, group: 99, resident: 16}, // and its child
		20: {parent: 1, group: 20, resident: 32},
	})
	require.ElementsMatch(t, []int{10, 11, 12, 13, 14}, table.Tree(10))
	require.Equal(t, uint64(31), table.Resident(10))
	require.Equal(t, uint64(63), table.Resident(10, 20))
	require.Equal(t, uint64(32), table.Resident(20))
}

func TestParseStat_NamesWithAnything(t *testing.T) {
	rest := " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 100 200 300 18446744073709551615"
	for _, name := range []string{"sh", "a b", "x) R 1 1 (", "))"} {
		row, ok := parseStat([]byte("42 (" + name + ")" + rest))
		require.True(t, ok)
		require.Equal(t, processRow{parent: 7, group: 8, resident: 300 * pageSize}, row)
	}
	for _, bad := range []string{"", "42 (sh) S 7", "42 (sh)" + strings.Replace(rest, " 7 ", " x ", 1)} {
		_, ok := parseStat([]byte(bad))
		require.False(t, ok)
	}
}
