package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/test/rig"
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

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(data)
}

func TestCgroups_InAContainerTheWorkerMakesRoom(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2,
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "sys/fs/cgroup/cgroup.subtree_control": "\n",
		"sys/fs/cgroup/cgroup.procs": fmt.Sprintln(os.Getpid()),
	})
	c, err := openCgroups(root)
	require.NoError(t, err)
	home := filepath.Join(root, "sys/fs/cgroup")
	require.Equal(t, strconv.Itoa(os.Getpid()), read(t, home, "worker/cgroup.procs"))
	require.Equal(t, "+memory", read(t, home, "cgroup.subtree_control"))

	g, err := c.create(512 << 20)
	require.NoError(t, err)
	require.Equal(t, home, filepath.Dir(g.dir))
	require.Equal(t, "536870912", read(t, g.dir, "memory.max"))
	require.Equal(t, "1", read(t, g.dir, "memory.oom.group"))
	require.Equal(t, "0", read(t, g.dir, "memory.swap.max"))
	require.Positive(t, g.file.Fd())
	require.Zero(t, g.kills())
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "memory.events"), []byte("low 0\nhigh 0\nmax 31\noom 1\noom_kill 3\noom_group_kill 1\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "memory.peak"), []byte("536870912\n"), 0o644))
	require.Equal(t, Kills{3, true, 512 << 20}, g.kills())

	other, err := c.create(1 << 30)
	require.NoError(t, err)
	require.NotEqual(t, g.dir, other.dir)
}

func TestCgroups_OnlyWhereTheyWereHandedOver(t *testing.T) {
	slice := map[string]string{
		"proc/self/cgroup": "0::/system.slice/gpumux.service\n", "proc/self/mountinfo": mountinfo2,
		"sys/fs/cgroup/system.slice/gpumux.service/cgroup.controllers":     "memory pids\n",
		"sys/fs/cgroup/system.slice/gpumux.service/cgroup.subtree_control": "",
		"sys/fs/cgroup/system.slice/gpumux.service/cgroup.procs":           fmt.Sprintln(os.Getpid()),
		"sys/fs/cgroup/system.slice/cgroup.controllers":                    "memory pids\n",
		"sys/fs/cgroup/system.slice/cgroup.subtree_control":                "memory pids\n",
	}
	root := tree(t, slice)
	_, err := openCgroups(root)
	require.ErrorContains(t, err, "cgroup /system.slice/gpumux.service is not handed over to the worker; start it with Delegate=yes")

	service := filepath.Join(root, "sys/fs/cgroup/system.slice/gpumux.service")
	if err := unix.Setxattr(service, "user.delegate", []byte("1"), 0); err != nil {
		rig.Because(t, rig.Kernel, "the folder for temporary files takes no attributes: ", err)
	}
	c, err := openCgroups(root)
	require.NoError(t, err)
	require.Equal(t, service, c.home)

	// The service manager put the worker below what it handed over: there is room beside it.
	slice["proc/self/cgroup"] = "0::/system.slice/gpumux.service/main\n"
	slice["sys/fs/cgroup/system.slice/gpumux.service/main/cgroup.procs"] = "1\n2\n"
	root = tree(t, slice)
	service = filepath.Join(root, "sys/fs/cgroup/system.slice/gpumux.service")
	require.NoError(t, unix.Setxattr(service, "user.delegate", []byte("1"), 0))
	c, err = openCgroups(root)
	require.NoError(t, err)
	require.Equal(t, service, c.home)
	require.NoDirExists(t, filepath.Join(service, "worker"))
}

// What a killed worker left is removed by the next one, and only that.
func TestCgroups_OfAKilledWorkerAreRemoved(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2,
		"sys/fs/cgroup/cgroup.controllers": "memory\n", "sys/fs/cgroup/cgroup.subtree_control": "memory\n",
		"sys/fs/cgroup/cgroup.procs": fmt.Sprintln(os.Getpid()),
	})
	killed := exec.Command("true")
	require.NoError(t, killed.Run())
	home := filepath.Join(root, "sys/fs/cgroup")
	folder := func(worker int) string { return filepath.Join(home, fmt.Sprintf(cgroupName, worker, 1)) }
	stay := []string{folder(os.Getpid()), folder(os.Getppid()), filepath.Join(home, "gpumux-none-1")}
	for _, dir := range append(stay, folder(killed.Process.Pid)) {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	c, err := openCgroups(root)
	require.NoError(t, err)
	require.NoDirExists(t, folder(killed.Process.Pid))
	for _, dir := range stay {
		require.DirExists(t, dir)
	}
	g, err := c.create(1 << 20)
	require.NoError(t, err)
	require.NotEqual(t, folder(os.Getpid()), g.dir, "the name is taken")
}

func TestCgroups_SayWhyThereAreNone(t *testing.T) {
	_, err := openCgroups(t.TempDir())
	require.EqualError(t, err, "no cgroup of version 2 is mounted")
	_, err = openCgroups(tree(t, map[string]string{
		"proc/self/cgroup": "4:memory:/x\n0::/\n", "proc/self/mountinfo": mountinfo2, "sys/fs/cgroup/cgroup.controllers": "hugetlb\n",
	}))
	require.EqualError(t, err, "cgroup / has no memory controller of version 2")
	_, err = openCgroups(tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2, "sys/fs/cgroup/cgroup.controllers": "memory\n",
		"sys/fs/cgroup/cgroup.procs": fmt.Sprintf("%d\n1\n", os.Getpid()),
	}))
	require.EqualError(t, err, "process 1 shares the worker's cgroup; start the worker in one of its own")
}

func TestCgroups_CountersOfTheWorkersOwn(t *testing.T) {
	const events = "sys/fs/cgroup/memory.events"
	root := tree(t, map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2, events: "oom 2\noom_kill 5\n"})
	require.Equal(t, filepath.Join(root, events), findKills(root))
	require.Equal(t, 5, counter(findKills(root), "oom_kill"))
	root = tree(t, map[string]string{
		"proc/self/cgroup":                              "9:name=systemd:/\n4:memory,hugetlb:/box/7\n0::/\n",
		"proc/self/mountinfo":                           "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hugetlb\n",
		"sys/fs/cgroup/memory/box/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	})
	require.Equal(t, 2, counter(findKills(root), "oom_kill"))
	root = tree(t, map[string]string{
		"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo2, "proc/vmstat": "pgfault 9\noom_kill 4\n",
	})
	require.Equal(t, 4, counter(findKills(root), "oom_kill"), "the root of all cgroups counts nothing by itself")
	require.Empty(t, findKills(t.TempDir()))
	require.Zero(t, counter("/nowhere", "oom_kill"))
	var none *cgroup
	none.close()
	require.Zero(t, none.kills())
	require.GreaterOrEqual(t, MemoryKills(), 0)
}

// A forked process is moved into its cgroup, in a real tree where this test may change
// one.
func TestCgroups_AProcessIsMovedInside(t *testing.T) {
	mount, path := ownCgroup("/")
	if mount == "" {
		rig.Because(t, rig.Cgroups, "none of version 2 is mounted")
	}
	g := &cgroup{dir: filepath.Join(mount, path, fmt.Sprintf("gpumux-moved-%d", os.Getpid()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		rig.Because(t, rig.Cgroups, err)
	}
	t.Cleanup(func() { os.Remove(g.dir) })
	cmd := exec.Command("sleep", "600")
	require.NoError(t, spawn(cmd, nil, 0))
	require.NoError(t, g.add(cmd.Process.Pid))
	require.Equal(t, fmt.Sprintln(cmd.Process.Pid), read(t, g.dir, "cgroup.procs"))
	waited := make(chan error, 1)
	go func() { await(cmd.Process, nil); waited <- nil }()
	g.close()
	<-waited
	require.NoDirExists(t, g.dir)
	require.ErrorContains(t, g.add(os.Getpid()), "move a task process into its cgroup")
	var none *cgroup
	require.NoError(t, none.add(1))
}

// A process is started inside of its cgroup and the cgroup goes with it, in a real tree
// where this test may change one.
func TestCgroups_AProcessStartsInside(t *testing.T) {
	mount, path := ownCgroup("/")
	if mount == "" {
		rig.Because(t, rig.Cgroups, "none of version 2 is mounted")
	}
	home := filepath.Join(mount, path)
	dir := filepath.Join(home, fmt.Sprintf("gpumux-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		rig.Because(t, rig.Cgroups, err)
	}
	g := &cgroup{dir: dir}
	t.Cleanup(func() { os.Remove(dir) })
	var err error
	g.file, err = os.Open(dir)
	require.NoError(t, err)
	cmd := exec.Command("sleep", "600")
	require.NoError(t, spawn(cmd, g, 0))
	require.Equal(t, fmt.Sprintln(cmd.Process.Pid), read(t, dir, "cgroup.procs"))
	waited := make(chan error, 1)
	go func() { await(cmd.Process, nil); waited <- nil }()
	g.close()
	<-waited
	require.NoDirExists(t, dir, "what was left in it is gone")
}

func TestCgroups_TellWhatTheKernelKilled(t *testing.T) {
	dir := t.TempDir()
	g := &cgroup{dir: dir}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 1\noom_kill 2\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.peak"), []byte("536870912\n"), 0o644))
	require.Equal(t, Kills{2, true, 512 << 20}, g.kills())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 0\noom_kill 1\n"), 0o644))
	require.Equal(t, Kills{1, false, 512 << 20}, g.kills())
	require.Zero(t, (*cgroup)(nil).kills())
}
