package kernelcheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/deploy/devserver/programtest"
	"github.com/gpumux/gpumux/internal/skip"
)

const (
	mib     = 1 << 20
	cgroups = "/sys/fs/cgroup"
	// unreached is the exit code of a command that did not reach the server.
	unreached = 3
	// slack is what a process shows of its program's own file, which others have paid for and no limit counts.
	slack = 16 * mib
	// patience is for a machine that is emulated on a busy one.
	patience = 5 * time.Minute
	// nobody is whom everything runs as: root could do what a worker may not.
	nobody = 65534
)

const tasks = `
import mmap, os, subprocess, sys, time

def write(mb):
    # in one call of the kernel, so that a watch hardly sees it grow
    return mmap.mmap(-1, mb << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000) # MAP_POPULATE

def take(item):
    """Hold so many MiB at once; with "child" in another process, whose end this one would get over."""
    if item.get("child"):
        code = f"import memory; memory.write({item['mb']}); print('held')"
        said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.path.dirname(__file__)).stdout
        return [said.decode().strip(), os.getpid()]
    block = write(item["mb"])
    time.sleep(item.get("nap", 0))
    return [len(block) >> 20, os.getpid()]

def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return "gone on"
`

// site is a folder of a test, for workers in cgroups of their own.
type site struct {
	t   *testing.T
	dir string
}

// inMachine skips the test outside of the machine of make kernel-check.
func inMachine(t *testing.T) *site {
	t.Helper()
	if os.Getenv("GPUMUX_KERNEL_CHECK") == "" {
		skip.Because(t, skip.Own, "it changes cgroups and lets the kernel run out of memory; make kernel-check runs it in a virtual machine")
	}
	s := &site{t: t, dir: folder(t)}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.dir)) })
	s.write("memory.py", tasks)
	return s
}

// folder is one that everything here may write to.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpumux-kernel-")
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, nobody, nobody))
	return dir
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), 0o644))
}

// program is a gpumux command that was started.
type program struct {
	*exec.Cmd
	t              *testing.T
	stdout, stderr programtest.Screen
	ended          chan struct{}
}

// begin starts gpumux in a cgroup, or where the test is; it is killed with the test.
func (s *site) begin(box string, args ...string) *program {
	s.t.Helper()
	p := &program{Cmd: exec.Command(os.Getenv("GPUMUX_BINARY"), args...), t: s.t, ended: make(chan struct{})}
	p.Dir, p.Stdout, p.Stderr = s.dir, &p.stdout, io.MultiWriter(&p.stderr, os.Stderr)
	for _, name := range []string{"PATH", "TEMPORAL_ADDRESS"} {
		p.Env = append(p.Env, name+"="+os.Getenv(name))
	}
	p.Env = append(p.Env, "HOME="+s.dir, "XDG_STATE_HOME="+s.path("state"), "XDG_CACHE_HOME="+s.path("cache"))
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if box != "" {
		dir, err := os.Open(box)
		require.NoError(s.t, err)
		defer dir.Close()
		p.SysProcAttr.UseCgroupFD, p.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	require.NoError(s.t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if s.t.Failed() {
			s.t.Logf("gpumux %s\n%s", strings.Join(args, " "), &p.stdout)
		}
	})
	return p
}

// code waits for the end of the program.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.Args)
	}
	return p.ProcessState.ExitCode()
}

// alive reports whether the program runs.
func (p *program) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// worker starts a worker with one pool, given as YAML, in a cgroup, and waits until it says what keeps its budget.
func (s *site) worker(box, pool, means string) *program {
	s.t.Helper()
	s.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, %s}]\n"+
		"tasks: {take: {python: \"memory.py:take\"}, wait: {python: \"memory.py:wait\"}}\n", s.path("store"), pool))
	p := s.reaching("serving", box, "worker", "-f", "worker.yaml")
	if means != "" {
		require.Contains(s.t, p.stderr.String(), "enforced by: "+means+" every")
	}
	return p
}

// reaching starts gpumux until it has reached the server, which it gives up soon for an emulated machine, and then says something.
func (s *site) reaching(text, box string, args ...string) *program {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		p := s.begin(box, args...)
		said := func() bool { return strings.Contains(p.stderr.String(), text) || !p.alive() }
		require.Eventually(s.t, said, patience, 20*time.Millisecond, "%s", text)
		if p.alive() || p.code() != unreached || time.Now().After(end) {
			return p
		}
	}
}

// on is the site for a test within the test.
func (s site) on(t *testing.T) *site {
	s.t = t
	return &s
}

// object is an item.
type object map[string]any

// mapped maps the task take over items, whose results are its own unless they are faults.
func (s *site) mapped(code int, items []object, flags ...string) []gpumux.Result {
	s.t.Helper()
	var lines bytes.Buffer
	for _, item := range items {
		require.NoError(s.t, json.NewEncoder(&lines).Encode(item))
	}
	s.write("items.jsonl", lines.String())
	p := s.reaching("\n", "", append([]string{"map", "take", "--in", "items.jsonl", "--out", "-", "--pool", "cpu"}, flags...)...)
	require.Equal(s.t, code, p.code(), "%s", &p.stderr)
	var results []gpumux.Result
	for line := range strings.Lines(p.stdout.String()) {
		var r gpumux.Result
		require.NoError(s.t, json.Unmarshal([]byte(line), &r), line)
		require.EqualValues(s.t, len(results), r.Index)
		results = append(results, r)
	}
	require.Len(s.t, results, len(items))
	return results
}

// took checks the value of an item that took memory, and gives the process that did.
func took(t *testing.T, item object, r gpumux.Result) (pid int) {
	t.Helper()
	if r.Fault != nil {
		require.NoError(t, r.Fault, "item %d: %s", r.Index, r.Fault.Tail)
	}
	var held int
	require.NoError(t, json.Unmarshal(r.Value, &[]any{&held, &pid}), string(r.Value))
	require.Equal(t, item["mb"], held)
	return pid
}

// box makes a cgroup; a limit of "" is none.
func box(t *testing.T, limit string) string {
	t.Helper()
	dir, err := os.MkdirTemp(cgroups, "box-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0))
		require.Eventually(t, func() bool { return remove(dir) == nil }, patience, 10*time.Millisecond, "what ran in %s is gone", dir)
	})
	if limit != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.max"), []byte(limit), 0))
	}
	return dir
}

// remove removes a cgroup and all below it, when no process is left there.
func remove(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for i := len(all) - 1; err == nil && i >= 0; i-- {
		err = syscall.Rmdir(all[i])
	}
	return err
}

// handOver lets the worker make cgroups below a box, as a service manager does for a service with a user of its own.
func handOver(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, syscall.Setxattr(dir, "user.delegate", []byte("1"), 0))
	require.NoError(t, os.Chown(dir, nobody, nobody))
	for _, name := range []string{"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		require.NoError(t, os.Chown(filepath.Join(dir, name), nobody, nobody))
	}
	return dir
}

// slots are the cgroups of task processes below a box.
func slots(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "gpumux-*"))
	require.NoError(t, err)
	return list
}

// killed says whether the kernel killed a process for want of memory, and which cgroup's limit it met, or "" for the host's.
func killed(t *testing.T, pid int) (is bool, limit string) {
	t.Helper()
	out, err := exec.Command("dmesg").Output()
	require.NoError(t, err)
	// The line with the limit comes first, and names whom the kernel chose.
	line := regexp.MustCompile(`oom-kill:\S*?(?:,oom_memcg=([^,]*))?,(?:global_oom,)?task_memcg=[^,]*,task=[^,]*,` +
		fmt.Sprintf("pid=%d,", pid))
	if found := line.FindStringSubmatch(string(out)); found != nil {
		return true, found[1]
	}
	return false, ""
}

// kills is how often the kernel has killed for a limit just below a box, as that of a task process is. A slow machine lets the
// watch see some of what grows there first.
func kills(t *testing.T, home string) int {
	t.Helper()
	out, err := exec.Command("dmesg").Output()
	require.NoError(t, err)
	return strings.Count(string(out), ",oom_memcg="+strings.TrimPrefix(home, cgroups)+"/gpumux-")
}

// score is how the kernel ranks a process as one to kill for want of memory.
func score(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score", pid))
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return n
}

// memory is a line of /proc/meminfo, in bytes.
func memory(t *testing.T, name string) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	require.NoError(t, errors.New("/proc/meminfo has no "+name))
	return 0
}
