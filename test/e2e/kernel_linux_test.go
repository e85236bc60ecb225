package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// These tests run out of memory in cgroups of version 2. They make their cgroups below
// the one that was handed over to the test.

const (
	kernelPy = `
import mmap, time

def write(mb):
    # in one call of the kernel, so that a watch hardly sees it grow
    return mmap.mmap(-1, mb << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000) # MAP_POPULATE

def take(item):
    """Hold so many MiB at once."""
    block = write(item["mb"])
    time.sleep(item.get("nap", 0))
    return len(block) >> 20
`
	// howToDelegate is the next step where a test gets no cgroup.
	howToDelegate = "run `systemd-run --user --scope -p Delegate=yes make kernel-check`, or make kernel-check in a container with a " +
		"writable cgroup root"
)

// handedOver is the cgroup that the test may make others in. It moves all that runs there
// into one below, since processes cannot stay beside cgroups with limits.
var handedOver = sync.OnceValues(func() (string, error) {
	const mount = "/sys/fs/cgroup"
	data, _ := os.ReadFile("/proc/self/cgroup")
	path, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "0::")
	delegated := filepath.Join(mount, path)
	if has, _ := os.ReadFile(filepath.Join(delegated, "cgroup.controllers")); !ok || !strings.Contains(string(has), "memory") {
		return "", errors.New("this machine has no cgroups of version 2 with a memory controller for it")
	}
	if _, err := syscall.Getxattr(delegated, "user.delegate", make([]byte, 1)); path != "/" && err != nil {
		return "", fmt.Errorf("cgroup %s was not handed over to this process", path)
	}
	limit := func() error {
		return os.WriteFile(filepath.Join(delegated, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	err := limit()
	if errors.Is(err, syscall.EBUSY) {
		aside := filepath.Join(delegated, "tests")
		if err := os.Mkdir(aside, 0o755); err != nil {
			return "", err
		}
		running, _ := os.ReadFile(filepath.Join(delegated, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(running)) {
			_ = os.WriteFile(filepath.Join(aside, "cgroup.procs"), []byte(pid), 0) // some end meanwhile
		}
		err = limit()
	}
	return delegated, err
})

// newBox makes a cgroup; a limit of "" is none.
func newBox(t *testing.T, limit string) (dir string) {
	t.Helper()
	if os.Getenv("GPUMUX_KERNEL_CHECK") == "" {
		rig.Because(t, rig.Exclusive, "it moves what runs in its cgroup into another; make kernel-check runs it")
	}
	delegated, err := handedOver()
	if err != nil {
		rig.Because(t, rig.Cgroups, err, "; ", howToDelegate)
	}
	// A worker in a box takes a parent that was handed over for its own, so there is a plain
	// one between.
	parent, err := os.MkdirTemp(delegated, "kernel-check-")
	require.NoError(t, err)
	dir = filepath.Join(parent, "box")
	require.NoError(t, os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+memory"), 0))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		require.NoError(t, os.WriteFile(filepath.Join(parent, "cgroup.kill"), []byte("1"), 0))
		rig.Wait(t, func() bool { return removeCgroup(parent) == nil }, time.Minute, 10*time.Millisecond, "what ran in %s is gone", dir)
	})
	if limit != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.max"), []byte(limit), 0))
	}
	return dir
}

// removeCgroup removes a cgroup and all below it, when no process is left there.
func removeCgroup(dir string) error {
	below, err := os.ReadDir(dir)
	for _, entry := range below {
		if entry.IsDir() {
			err = errors.Join(err, removeCgroup(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(err, os.Remove(dir))
}

// kernelKills is how many processes the kernel has killed in a box for want of memory,
// and how often the limit of the box itself was met.
func kernelKills(t *testing.T, box string) (kills, limits int) {
	t.Helper()
	count := func(file, name string) int {
		data, err := os.ReadFile(filepath.Join(box, file))
		require.NoError(t, err)
		_, rest, _ := strings.Cut("\n"+string(data), "\n"+name+" ")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return n
	}
	return count("memory.events", "oom_kill"), count("memory.events.local", "oom")
}

// beginIn starts gpumux stream in a box.
func (s *shell) beginIn(box string, items []map[string]any, flags ...string) *program {
	s.t.Helper()
	s.write("kernel.py", kernelPy)
	var lines strings.Builder
	for _, item := range items {
		require.NoError(s.t, json.NewEncoder(&lines).Encode(item))
	}
	s.write("items.jsonl", lines.String())
	dir, err := os.Open(box)
	require.NoError(s.t, err)
	defer dir.Close()
	s.attr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return s.begin(append([]string{"stream", "kernel.py:take", "-v", "--in", "items.jsonl", "--pool", "cpu"}, flags...)...)
}

// streamIn runs items in a box. Those that have no fault have held what they are to. The
// slots' means are what the worker says that it enforces budgets by.
func (s *shell) streamIn(box, means string, items []map[string]any, flags ...string) (faults map[int]*gpumux.Fault) {
	s.t.Helper()
	p := s.beginIn(box, items, flags...)
	p.code()
	if means != "" {
		require.Contains(s.t, p.stderr.String(), "enforced by: "+means+" every")
	}
	require.NotContains(s.t, p.stderr.String(), "a template ended", "task processes go before the template")
	faults = map[int]*gpumux.Fault{}
	done := 0
	for line := range strings.Lines(p.stdout.String()) {
		var r gpumux.Result
		require.NoError(s.t, json.Unmarshal([]byte(line), &r), line)
		require.EqualValues(s.t, done, r.Index)
		if done++; r.Fault != nil {
			s.t.Log(r.Fault)
			require.Equal(s.t, "signal SIGKILL", r.Fault.Exit)
			require.NotEmpty(s.t, r.Fault.Hint)
			faults[int(r.Index)] = r.Fault
		} else {
			require.Equal(s.t, fmt.Sprint(items[r.Index]["mb"]), string(r.Value))
		}
	}
	require.Equal(s.t, len(items), done, "the worker lives\n%s", &p.stderr)
	return faults
}

// The watch ends what passes its budget before the kernel has a reason to.
func TestKernel_TheWatchEndsWhatPassesItsBudget(t *testing.T) {
	box := newBox(t, "")
	list := []map[string]any{{"mb": 2}, {"mb": 200, "nap": 600}}
	faults := newShell(t).streamIn(box, "watch", list, "--slots", "1", "--memory", "64MiB")
	require.Len(t, faults, 1)
	require.Equal(t, gpumux.FaultBudget, faults[1].Kind)
	require.Greater(t, faults[1].Peak, faults[1].Budget)
	kills, _ := kernelKills(t, box)
	require.Zero(t, kills, "the kernel had no reason")
}

// A container's limit holds the worker and its template as well; it is a task process
// that meets it, and one that kept to its budget is not blamed.
func TestKernel_AContainerThatRunsOutLosesATaskProcess(t *testing.T) {
	for name, flags := range map[string][]string{
		"Budget":   {"--slots", "1", "--memory", "490MiB"},
		"NoBudget": {"--slots", "2"},
		"Fresh":    {"--slots", "2", "--mode", "fresh"},
	} {
		t.Run(name, func(t *testing.T) {
			box := newBox(t, "500M")
			list := []map[string]any{{"mb": 1}, {"mb": 470}, {"mb": 2}}
			faults := newShell(t).streamIn(box, "", list, flags...)
			require.Len(t, faults, 1)
			f := faults[1]
			require.NotNil(t, f)
			require.Equal(t, gpumux.FaultHostOOM, f.Kind)
			if name == "Budget" {
				require.Less(t, f.Peak, f.Budget)
			}
			if !strings.HasPrefix(f.Message, "the host had ") { // the watch may come first
				kills, limits := kernelKills(t, box)
				require.Positive(t, kills)
				require.Positive(t, limits)
			}
		})
	}
}
