package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
)

// Cgroups makes a cgroup with a memory limit per task process, from any goroutine.
type Cgroups struct {
	// home is the folder below which they are created.
	home    string
	mu      sync.Mutex
	created int
}

// OpenCgroups finds the part of the cgroup tree (version 2) that is delegated to this
// worker: by the service manager with Delegate=yes, or by a container with a writable
// root. Processes cannot stay beside cgroups with limits, so the worker moves itself into
// one called worker. It refuses where other processes would have to move too.
func OpenCgroups() (*Cgroups, error) {
	c, err := openCgroups("/")
	if err == nil {
		err = c.probe()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// probe starts a process in a cgroup, so an error shows before a task needs one.
func (c *Cgroups) probe() error {
	g, err := c.create(64 << 20)
	if err != nil {
		return err
	}
	defer g.close()
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if err := spawn(cmd, g, 0); err != nil {
		return fmt.Errorf("start a process in a cgroup: %w", err)
	}
	if state := await(cmd.Process, nil); !state.Success() {
		return fmt.Errorf("run a process in a cgroup: %s", state)
	}
	return nil
}

// openCgroups is OpenCgroups below another root than /, for tests.
func openCgroups(root string) (*Cgroups, error) {
	mount, path := ownCgroup(root)
	if mount == "" {
		return nil, errors.New("no cgroup of version 2 is mounted")
	}
	own := filepath.Join(root, mount, path)
	home := own
	if parent := filepath.Dir(own); path != "/" && delegated(parent) {
		home = parent // the service manager put the worker into a cgroup below the delegated one
	} else if path != "/" && !delegated(own) {
		return nil, fmt.Errorf("cgroup %s is not handed over to the worker; start it with Delegate=yes, or in a container", path)
	}
	if !hasWord(filepath.Join(home, "cgroup.controllers"), "memory") {
		return nil, fmt.Errorf("cgroup %s has no memory controller of version 2", path)
	}
	if home == own {
		if err := moveAside(home); err != nil {
			return nil, err
		}
	}
	if !hasWord(filepath.Join(home, "cgroup.subtree_control"), "memory") {
		if err := os.WriteFile(filepath.Join(home, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
			return nil, fmt.Errorf("limit memory below cgroup %s: %w", path, err)
		}
	}
	c := &Cgroups{home: home}
	c.clear()
	return c, nil
}

// moveAside moves this process and its children from a cgroup into one below it.
func moveAside(home string) error {
	list, err := os.ReadFile(filepath.Join(home, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("list the processes of the worker's cgroup: %w", err)
	}
	ours := append(children(), os.Getpid())
	pids := strings.Fields(string(list))
	for _, pid := range pids {
		if n, err := strconv.Atoi(pid); err != nil || !slices.Contains(ours, n) {
			return fmt.Errorf("process %s shares the worker's cgroup; start the worker in one of its own", pid)
		}
	}
	aside := filepath.Join(home, "worker")
	if err := os.Mkdir(aside, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make a cgroup for the worker: %w", err)
	}
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(aside, "cgroup.procs"), []byte(pid), 0o644); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("move the worker into a cgroup of its own: %w", err)
		}
	}
	return nil
}

// create makes a cgroup with a limit. The caller closes it when its processes are gone.
func (c *Cgroups) create(limit gpumux.Size) (*cgroup, error) {
	g, err := c.mkdir()
	if err != nil {
		return nil, fmt.Errorf("make a cgroup for a task process: %w", err)
	}
	if err := g.write("memory.max", int64(limit)); err != nil {
		g.close()
		return nil, fmt.Errorf("limit a task process's memory: %w", err)
	}
	// The kernel then kills the whole tree at once, and no swap extends the budget.
	_ = g.write("memory.oom.group", 1)
	_ = g.write("memory.swap.max", 0)
	if g.file, err = os.Open(g.dir); err != nil {
		g.close()
		return nil, fmt.Errorf("open a task process's cgroup: %w", err)
	}
	return g, nil
}

// mkdir makes an empty cgroup with an unused name.
func (c *Cgroups) mkdir() (*cgroup, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.created++
		g := &cgroup{dir: filepath.Join(c.home, fmt.Sprintf(cgroupName, os.Getpid(), c.created))}
		// A killed worker with the same number, or other Cgroups, may have left one.
		if err := os.Mkdir(g.dir, 0o755); err == nil || !errors.Is(err, os.ErrExist) {
			return g, err
		}
	}
}

// cgroupName has the worker's number and one for each task process.
const cgroupName = "gpumux-%d-%d"

// clear removes the empty cgroups of killed workers, and waits a moment for others.
func (c *Cgroups) clear() {
	left, _ := filepath.Glob(filepath.Join(c.home, "gpumux-*-*"))
	end := time.Now().Add(clearLimit)
	for _, dir := range left {
		var worker, number int
		if n, _ := fmt.Sscanf(filepath.Base(dir), cgroupName, &worker, &number); n != 2 || unix.Kill(worker, 0) != unix.ESRCH {
			continue
		}
		for unix.Rmdir(dir) == unix.EBUSY && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
}

// clearLimit is how long a start waits for the last processes of earlier workers.
const clearLimit = time.Second

// cgroup holds one task process and its descendants. A nil cgroup is none.
type cgroup struct {
	dir  string
	file *os.File
}

func (g *cgroup) write(file string, value int64) error {
	return os.WriteFile(filepath.Join(g.dir, file), strconv.AppendInt(nil, value, 10), 0o644)
}

// add moves a process into the cgroup.
func (g *cgroup) add(pid int) error {
	if g == nil {
		return nil
	}
	if err := g.write("cgroup.procs", int64(pid)); err != nil {
		return fmt.Errorf("move a task process into its cgroup: %w", err)
	}
	return nil
}

func (g *cgroup) kills() Kills {
	if g == nil {
		return Kills{}
	}
	events := filepath.Join(g.dir, "memory.events")
	data, _ := os.ReadFile(filepath.Join(g.dir, "memory.peak"))
	peak, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return Kills{counter(events, "oom_kill"), counter(events, "oom") > 0, peak}
}

// closeLimit is how long close waits for the cgroup's last processes.
const closeLimit = 5 * time.Second

// close kills what is left in the cgroup and removes it.
func (g *cgroup) close() {
	if g == nil {
		return
	}
	if g.file != nil {
		g.file.Close()
	}
	for end := time.Now().Add(closeLimit); unix.Rmdir(g.dir) == unix.EBUSY && time.Now().Before(end); time.Sleep(time.Millisecond) {
		g.kill()
	}
}

// kill kills all processes in the cgroup, where the kernel can (Linux 5.14).
func (g *cgroup) kill() {
	if g != nil {
		_ = g.write("cgroup.kill", 1)
	}
}

// delegated reports whether a cgroup is delegated to the processes in it.
func delegated(dir string) bool {
	var value [8]byte
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

func hasWord(file, word string) bool {
	data, _ := os.ReadFile(file)
	return slices.Contains(strings.Fields(string(data)), word)
}

// ownCgroup is where version 2 is mounted, and this process's cgroup below it; "/" is the
// root of what it can see. Both are empty without version 2.
func ownCgroup(root string) (mount, path string) {
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(rest)
		}
	}
	if mount = mountOf(root, "cgroup2", ""); path == "" || mount == "" {
		return "", ""
	}
	return mount, path
}

// mountOf is where the first file system of a kind, with an option, is mounted.
func mountOf(root, kind, option string) string {
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		at, what := strings.Fields(before), strings.Fields(after)
		if len(at) >= 5 && len(what) >= 3 && what[0] == kind && (option == "" || slices.Contains(strings.Split(what[2], ","), option)) {
			return at[4]
		}
	}
	return ""
}

// MemoryKills is how many processes the out-of-memory killer has killed in the worker's
// own cgroup; 0 where the kernel does not tell.
func MemoryKills() int { return counter(killsFile(), "oom_kill") }

var killsFile = sync.OnceValue(func() string { return findKills("/") })

// findKills finds the counter in version 2, else in version 1, else the host's.
func findKills(root string) string {
	var candidates []string
	if mount, path := ownCgroup(root); mount != "" {
		candidates = append(candidates, filepath.Join(root, mount, path, "memory.events"), filepath.Join(root, mount, "memory.events"))
	}
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && slices.Contains(strings.Split(part[1], ","), "memory") {
			mount := filepath.Join(root, mountOf(root, "cgroup", "memory"))
			candidates = append(candidates, filepath.Join(mount, part[2], "memory.oom_control"), filepath.Join(mount, "memory.oom_control"))
		}
	}
	for _, file := range append(candidates, filepath.Join(root, "proc/vmstat")) {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte("oom_kill ")) {
			return file
		}
	}
	return ""
}

// counter reads one line of a file of counters.
func counter(file, name string) int {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}
