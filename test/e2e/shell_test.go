package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/s3test"
	"github.com/gpumux/gpumux/test/programtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		// Most of what parallel tests do here is waiting.
		if err := parallel.Value.Set(strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	for name, value := range s3test.Credentials {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(programtest.Main(m))
}

// shell is a folder in which a person types commands.
type shell struct {
	t   testing.TB
	dir string
	env []string
	// attr starts its commands; nil is as others start.
	attr *syscall.SysProcAttr
	// program is what its commands start, with these arguments before theirs; empty is
	// gpumux as it is here.
	program string
	before  []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "step.py"), []byte(stepPy), 0o644))
	s := &shell{t: t, dir: dir}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			s.env = append(s.env, name+"="+value)
		}
	}
	s.env = append(s.env, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	return s
}

// program is a command that was started.
type program struct {
	*exec.Cmd
	t              testing.TB
	stdout, stderr programtest.Screen
	ended          chan struct{}
}

// begin starts gpumux; it is killed with the test.
func (s *shell) begin(args ...string) *program {
	s.t.Helper()
	path := s.program
	if path == "" {
		path = programtest.Binary(s.t)
	}
	p := &program{Cmd: exec.Command(path, slices.Concat(s.before, args)...), t: s.t, ended: make(chan struct{})}
	p.Dir, p.Env, p.Stdout, p.Stderr, p.SysProcAttr = s.dir, s.env, &p.stdout, &p.stderr, s.attr
	require.NoError(s.t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	return p
}

// ready waits until a server says that it serves.
func (p *program) ready() {
	p.t.Helper()
	says := func() bool { return strings.Contains(p.stderr.String(), "Ctrl-C stops") }
	defer func() {
		if !says() {
			p.t.Log(p.stderr.String())
		}
	}()
	rig.Wait(p.t, func() bool { return says() || p.over() }, time.Minute, 20*time.Millisecond, "it says that it is ready")
	require.True(p.t, says(), "it says that it is ready")
}

// over reports whether the program has ended.
func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// code waits for the end of the program.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("%v does not end\n%s", p.Args, &p.stderr)
	}
	return p.ProcessState.ExitCode()
}

// run runs gpumux to its end.
func (s *shell) run(want int, args ...string) *program {
	s.t.Helper()
	p := s.begin(args...)
	require.Equal(s.t, want, p.code(), "%v\n%s", args, &p.stderr)
	return p
}

func (s *shell) path(name string) string { return filepath.Join(s.dir, name) }

func (s *shell) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.path(name), []byte(text), 0o644))
}

// calls counts how often each item was finished.
func (s *shell) calls() map[string]int {
	text, err := os.ReadFile(s.path("calls"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	count := map[string]int{}
	for _, item := range strings.Fields(string(text)) {
		count[item]++
	}
	return count
}

// lines reads a results file and checks that every index is there once, in order.
func (s *shell) lines(text string) []map[string]json.RawMessage {
	s.t.Helper()
	var all []map[string]json.RawMessage
	for line := range strings.Lines(text) {
		var result map[string]json.RawMessage
		require.NoError(s.t, json.Unmarshal([]byte(line), &result), line)
		require.Equal(s.t, strconv.Itoa(len(all)), string(result["index"]))
		all = append(all, result)
	}
	return all
}

func (s *shell) file(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.path(name))
	require.NoError(s.t, err)
	return string(text)
}

// state lists the folders of local maps.
func (s *shell) state() []string {
	found, err := filepath.Glob(s.path("state/gpumux/local/*"))
	require.NoError(s.t, err)
	return found
}

// pidsIn are the processes whose working folder is dir.
func pidsIn(t testing.TB, dir string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == dir {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// children are the command lines of processes whose working folder is dir.
func children(t testing.TB, dir string) (commands []string) {
	t.Helper()
	for _, pid := range pidsIn(t, dir) {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		commands = append(commands, strings.ReplaceAll(string(command), "\x00", " "))
	}
	return commands
}

// failedLines are the failed items of a results file.
func (s *shell) failedLines(name string) string {
	var b strings.Builder
	for line := range strings.Lines(s.file(name)) {
		if strings.Contains(line, `"fault"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// storedItems is how many results the parts of all maps in a store have.
func storedItems(t *testing.T, root string) (items int) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(root, "maps/*/*/*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	require.NoError(t, err)
	for _, part := range parts {
		text, err := os.ReadFile(part)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		items += bytes.Count(text, []byte("\n")) - 1 // the first line is the head
	}
	return items
}

// stepPy holds tasks that leave a line in the file calls for each item that they finish,
// and that wait for files to appear.
const stepPy = `
import os, time
here = os.path.dirname(os.path.abspath(__file__))
def mark(item):
    with open(os.path.join(here, "calls"), "a") as f: f.write("%s\n" % item)
def double(item):
    mark(item)
    return item * 2
def odd(item):
    if item % 2 and not os.path.exists(os.path.join(here, "fixed")): raise ValueError("%d is odd" % item)
    mark(item)
    return item
def gate(item):
    # the items from 5 on wait until the gate is opened
    while item >= 5 and not os.path.exists(os.path.join(here, "open")): time.sleep(0.01)
    mark(item)
    return item
`
