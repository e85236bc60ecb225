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

func TestCgroups_CountersOfTheWorkersOwn(t *testing.T) {
	const events = "sys/fs/cgroup/memory.events"
	root := tree(t, map[string]string{"proc/self/cgroup": "9:name=systemd:/\n0::/box\n",
		"sys/fs/cgroup/box/memory.events": "oom 2\noom_kill 5\n", events: "oom_kill 7\n"})
	require.Equal(t, 5, killsIn(findKills(root)))
	root = tree(t, map[string]string{"proc/self/cgroup": "9:name=systemd:/\n4:memory:/box/7\n0::/\n",
		"sys/fs/cgroup/memory/box/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"})
	require.Equal(t, 2, killsIn(findKills(root)), "version 1")
	root = tree(t, map[string]string{"proc/self/cgroup": "0::/host/path\n", events: "oom_kill 7\n", "proc/vmstat": "oom_kill 9\n"})
	require.Equal(t, 7, killsIn(findKills(root)), "a container that sees the host's path")
	root = tree(t, map[string]string{"proc/self/cgroup": "0::/\n", "proc/vmstat": "pgfault 9\noom_kill 4\n"})
	require.Equal(t, 4, killsIn(findKills(root)), "the root of all cgroups counts nothing by itself")
	require.Empty(t, findKills(t.TempDir()))
	require.GreaterOrEqual(t, MemoryKills(), 0)
}
