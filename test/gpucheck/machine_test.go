package gpucheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

const (
	mib = 1 << 20
	gib = 1 << 30
	// slack is how far two readings of a device's memory may lie apart on a quiet machine.
	slack = 64 * mib
)

// mapLimit bounds one gpumux command. It is below the limit of a step of check.py, which
// tells less of what is over it.
var mapLimit = sync.OnceValue(func() time.Duration {
	seconds, err := strconv.Atoi(os.Getenv("GPUMUX_GPU_LIMIT"))
	if err != nil {
		seconds = 180
	}
	return time.Duration(seconds-10) * time.Second
})

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// python is the interpreter of the tasks.
func python() string {
	value := os.Getenv("GPUMUX_TEST_PYTHON")
	if _, err := exec.LookPath(value); err != nil {
		return "python3"
	}
	return value
}

// rehearsed reports whether the machine is a stand-in, which whoever started the tests
// has set up.
func rehearsed() bool { return os.Getenv(gputest.StateVariable) != "" }

// machine is what a test runs on.
type machine struct {
	t         *testing.T
	inventory *gpu.Inventory
	// device is the GPU, or MIG instance, that gpumux uses first; slots share it.
	device gpu.Device
	dir    string
	tasks  string
	output string // what the last command said on standard error
	// within is what gpumux is run by, such as unshare; nothing for the shell's own way.
	within []string
}

// script is the machine with another file of tasks, and a folder of its own, so that it
// may run a command beside the machine's own.
func (m *machine) script(name string) *machine {
	m.t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	require.NoError(m.t, err)
	other := *m
	other.tasks, other.dir = path, m.t.TempDir()
	return &other
}

// onGPU skips the test where there is no GPU to run it on.
func onGPU(t *testing.T) *machine {
	t.Helper()
	inventory, err := gpu.Open(t.Context(), gpu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inventory.Close()) })
	devices, err := inventory.Select(gpu.Selection{"all"})
	if err != nil || len(devices) == 0 {
		rig.Because(t, rig.GPU, inventory.Reason())
	}
	tasks, err := filepath.Abs("testdata/tasks.py")
	require.NoError(t, err)
	return &machine{t: t, inventory: inventory, device: devices[0], dir: t.TempDir(), tasks: tasks}
}

// needs skips the test where Python lacks a framework, or the framework reaches no GPU.
func (m *machine) needs(framework string) {
	m.t.Helper()
	if why := lacks(framework); why != "" {
		rig.Because(m.t, rig.Framework, framework, ": ", why)
	}
}

// lacking is what is known of frameworks: GPUMUX_GPU_LACKS, in which check.py says it
// once for all tests, and what was found out.
var lacking = sync.OnceValue(func() map[string]string {
	known := map[string]string{}
	_ = json.Unmarshal([]byte(os.Getenv("GPUMUX_GPU_LACKS")), &known) // else the frameworks are asked
	return known
})

// lacks says why a framework cannot be used, or nothing. The tests run one after the
// other.
func lacks(framework string) string {
	if why, known := lacking()[framework]; known {
		return why
	}
	why := ""
	reach := map[string]string{
		"torch": "import torch; assert torch.cuda.is_available()",
		"jax":   "import jax; assert jax.default_backend() == 'gpu'",
		"cupy":  "import cupy; assert cupy.cuda.runtime.getDeviceCount() > 0",
	}[framework]
	code := "import importlib.util, sys; sys.exit(7) if importlib.util.find_spec('" + framework + "') is None else None; " + reach
	cmd := exec.Command(python(), "-c", code)
	cmd.Env = append(os.Environ(), "XLA_PYTHON_CLIENT_PREALLOCATE=false")
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 7:
		why = "not installed for " + python()
	case err != nil:
		text := strings.TrimSpace(string(out))
		why = "reaches no GPU: " + text[strings.LastIndexByte(text, '\n')+1:]
	}
	lacking()[framework] = why
	return why
}

// figure reports a number; check.py finds it in the output.
func (m *machine) figure(format string, args ...any) {
	m.t.Helper()
	m.t.Logf("figure: "+format, args...)
}

// used is what is taken of the device's memory now, by everyone.
func (m *machine) used() int64 {
	m.t.Helper()
	status, err := m.inventory.Status(m.device.UUID)
	require.NoError(m.t, err)
	return int64(status.Memory.Used)
}

// returns waits until the device has about as much memory taken as before, and says how
// long that took and what is left over.
func (m *machine) returns(before int64) (took time.Duration, over int64) {
	m.t.Helper()
	began := time.Now()
	for {
		over = m.used() - before
		if over <= slack {
			return time.Since(began), over
		}
		require.Less(m.t, time.Since(began), 30*time.Second, "%s of device memory did not come back", gpumux.Size(over))
		time.Sleep(10 * time.Millisecond)
	}
}

// seen skips the test where no budget can be watched.
func (m *machine) seen() {
	m.t.Helper()
	if !m.lists() {
		rig.Because(m.t, rig.Unlisted, "it lists none under the number that it has here, so no budget is watched")
	}
}

// lists reports whether the driver lists a process that holds memory under the number
// that it has here.
func (m *machine) lists() bool {
	m.t.Helper()
	pid, stop := m.holder(gib)
	defer stop()
	census := gpu.NewCensus()
	census.Follow(pid)
	require.NoError(m.t, census.Round())
	held, err := m.inventory.ProcessMemory(m.device.UUID)
	require.NoError(m.t, err)
	for each := range census.Tree(pid).Resident {
		if held[each] > 0 {
			return true
		}
	}
	m.t.Logf("the driver lists %v", held)
	return false
}

// command runs gpumux to its end and checks its exit code.
func (m *machine) command(code int, args ...string) (stdout, stderr string) {
	m.t.Helper()
	path := programtest.Binary(m.t)
	ctx, cancel := context.WithTimeout(m.t.Context(), mapLimit())
	defer cancel()
	argv := slices.Concat(m.within, []string{path}, args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	var out, errs bytes.Buffer
	// What it says goes out at once: nothing else is left of a test that is ended for its
	// time.
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, &out, io.MultiWriter(&errs, os.Stderr)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(m.dir, "state"), "XDG_CACHE_HOME="+filepath.Join(m.dir, "cache"))
	err := cmd.Run()
	m.output = errs.String()
	require.NoError(m.t, ctx.Err(), "gpumux %v took more than %s", args, mapLimit())
	require.NotNil(m.t, cmd.ProcessState, "%v", err)
	require.Equal(m.t, code, cmd.ProcessState.ExitCode(), "gpumux %v\n%s", args, &out)
	return out.String(), errs.String()
}

// object is an item.
type object map[string]any

// mapped maps a task of tasks.py over items in a server and a worker of its own. The exit
// code says whether items failed.
func (m *machine) mapped(code int, function string, items []object, flags ...string) []gpumux.Result {
	m.t.Helper()
	var lines bytes.Buffer
	for _, item := range items {
		require.NoError(m.t, json.NewEncoder(&lines).Encode(item))
	}
	in := filepath.Join(m.dir, "items.jsonl")
	require.NoError(m.t, os.WriteFile(in, lines.Bytes(), 0o600))
	args := []string{
		"map", m.tasks + ":" + function, "--local", "--verbose", "--in", in, "--out", "-", "--python", python(), "--pool", "gpu",
	}
	m.t.Logf("gpumux map %s %s", function, strings.Join(flags, " "))
	out, _ := m.command(code, append(args, flags...)...)
	var results []gpumux.Result
	for line := range strings.Lines(out) {
		var r gpumux.Result
		require.NoError(m.t, json.Unmarshal([]byte(line), &r), line)
		require.Equal(m.t, int64(len(results)), r.Index)
		results = append(results, r)
	}
	require.Len(m.t, results, len(items))
	return results
}

// value reads an item's value, or fails with its fault.
func value[T any](t *testing.T, r gpumux.Result) (v T) {
	t.Helper()
	if r.Fault != nil {
		require.NoError(t, r.Fault, "item %d: %s", r.Index, r.Fault.Tail)
	}
	require.NoError(t, json.Unmarshal(r.Value, &v), string(r.Value))
	return v
}

// holder starts a process that holds memory on the device without gpumux, below a shell,
// and returns the shell's number.
func (m *machine) holder(size int64) (pid int, stop func()) {
	m.t.Helper()
	cmd := exec.Command("sh", "-c", `"$0" "$1" "$2"; exit $?`, python(), m.tasks, strconv.FormatInt(size, 10))
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+m.device.UUID)
	in, err := cmd.StdinPipe()
	require.NoError(m.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(m.t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(m.t, cmd.Start())
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	m.t.Cleanup(stop)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "holding\n" {
		stop()
		require.Fail(m.t, "no memory is held", "%s", &errs)
	}
	return cmd.Process.Pid, stop
}
