package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree makes the files that a cgroup tree shows, below a folder of the test's own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

const mountinfo2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

func TestCgroups_CountersOfTheWorkersOwn(t *testing.T) {
	const events = "sys/fs/cgroup/memory.events"
	root := tree(t, map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2, events: "oom 2\noom_kill 5\n"})
	require.Equal(t, filepath.Join(root, events), findKills(root))
	require.Equal(t, 5, killsIn(findKills(root)))
	root = tree(t, map[string]string{
		"proc/self/cgroup":                              "9:name=systemd:/\n4:memory,hugetlb:/box/7\n0::/\n",
		"proc/self/mountinfo":                           "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hugetlb\n",
		"sys/fs/cgroup/memory/box/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	})
	require.Equal(t, 2, killsIn(findKills(root)))
	root = tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2, "proc/vmstat": "pgfault 9\noom_kill 4\n",
	})
	require.Equal(t, 4, killsIn(findKills(root)), "the root of all cgroups counts nothing by itself")
	require.Empty(t, findKills(t.TempDir()))
	require.Zero(t, killsIn("/nowhere"))
	require.GreaterOrEqual(t, MemoryKills(), 0)
}
