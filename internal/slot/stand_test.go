package slot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// patience limits an item that hangs on purpose. Other items of these tests take much
// less.
const patience = 1200 * time.Millisecond

// stand is a slot with tasks that end badly. A mark in their environment finds its
// processes wherever they went.
type stand struct {
	*slot.Slot
	t    *testing.T
	mode gpumux.Mode
	// fresh is how its tasks want fresh processes to be made.
	fresh  launch.Fresh
	device string
	mark   string
	log    string
}

// stands numbers them, because a test may have several.
var stands atomic.Int64

func newStand(t *testing.T, mode gpumux.Mode) *stand {
	t.Helper()
	s := &stand{
		t: t, mode: mode, device: "CPU", log: filepath.Join(t.TempDir(), "log"),
		mark: fmt.Sprintf("FAULTS=%d/%s/%d", os.Getpid(), t.Name(), stands.Add(1)),
	}
	require.NoError(t, os.WriteFile(s.log, nil, 0o644))
	s.limit(30 * time.Second)
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.Equal(t, slot.Stopped, s.State())
		require.Empty(t, s.left(), "every process of the slot is gone")
		require.Empty(t, s.templates(), "and so are the templates")
	})
	return s
}

// newSpawning makes a stand that starts a new interpreter for each item.
func newSpawning(t *testing.T) *stand {
	t.Helper()
	s := newStand(t, gpumux.ModeFresh)
	s.fresh = launch.Spawn
	return s
}

// on makes the slot anew on another device.
func (s *stand) on(device string) {
	s.device = device
	s.limit(30 * time.Second)
}

// limit makes the slot anew with this time limit for starts.
func (s *stand) limit(start time.Duration) {
	if s.Slot != nil {
		require.NoError(s.t, s.Stop(context.Background()))
	}
	s.Slot = slot.New(slot.Options{
		Name: "cpu/1", Device: s.device, Runtime: runtimePath(s.t), Grace: 150 * time.Millisecond, StartLimit: start,
	})
}

// limitStart sets the limit for starts to several times what a good start takes on this
// machine now. A late ending waits for all of it, twice where a template is tried first.
func (s *stand) limitStart() {
	s.t.Helper()
	began := time.Now()
	s.works()
	s.limit(min(max(patience, 6*time.Since(began)), time.Minute))
	require.NoError(s.t, os.WriteFile(s.log, nil, 0o644))
}

// task is a function of testdata/faults.py. The env are pairs of a name and a value.
func (s *stand) task(function string, env ...string) launch.Task {
	dir, err := filepath.Abs("testdata")
	require.NoError(s.t, err)
	name, value, _ := strings.Cut(s.mark, "=")
	task := launch.Task{Name: function, Python: "faults.py:" + function, Dir: dir, Fresh: s.fresh, Env: map[string]string{
		name: value, "LOG": s.log, "NATIVE": native(), "PYTHONPYCACHEPREFIX": filepath.Join(os.TempDir(), "gpumux-test-runtime", "cache"),
	}}
	for i := 0; i < len(env); i += 2 {
		task.Env[env[i]] = env[i+1]
	}
	return task
}

func (s *stand) run(task launch.Task, call slot.Call) ([]calls.Done, error) {
	s.t.Helper()
	if call.Mode == "" {
		call.Mode = s.mode
	}
	return run(s.t, s.Slot, task, call)
}

// canceled cancels the call when its last item has begun, and checks that the slot then
// leaves no process.
func (s *stand) canceled(task launch.Task, call slot.Call) {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	n := 0
	for range call.Work.Items() {
		n++
	}
	why := errors.New("enough")
	before := len(s.begun())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, task, call) }()
	rig.Wait(s.t, func() bool { return len(s.begun()) == before+n }, time.Minute, 2*time.Millisecond)
	cancel(why)
	require.ErrorIs(s.t, <-ended, why)
	require.Empty(s.t, s.left())
	require.Equal(s.t, slot.Vacant, s.State())
}

// works makes a call after the fault, which must go well.
func (s *stand) works() {
	s.t.Helper()
	got, err := s.run(s.task("item"), slot.Call{Work: work(object{"i": 90})})
	require.NoError(s.t, err)
	require.Equal(s.t, []int{90}, numbers(s.t, got))
	if s.mode == gpumux.ModeFresh {
		require.Equal(s.t, slot.Vacant, s.State())
		require.Equal(s.t, s.fresh != launch.Spawn, len(s.templates()) > 0, "it was forked, or not")
	} else {
		require.Equal(s.t, slot.Ready, s.State())
	}
}

// dead checks what a fault says that ended the process, and that no process is left by
// then.
func (s *stand) dead(err error, e ending, kind gpumux.FaultKind, op string) *gpumux.Fault {
	s.t.Helper()
	require.Empty(s.t, s.left(), "the fault is told when the process is gone, not before")
	require.Equal(s.t, slot.Vacant, s.State())
	f := fault(s.t, err)
	require.Equal(s.t, kind, f.Kind, f.Error())
	require.Equal(s.t, op, f.Op)
	require.Contains(s.t, f.Exit, e.exit)
	require.Contains(s.t, f.Message, e.message)
	require.Equal(s.t, "cpu/1", f.Slot)
	require.NotZero(s.t, f.PID)
	require.NotEmpty(s.t, f.Message)
	require.NotEmpty(s.t, f.Hint, f.Error())
	require.Equal(s.t, kind == gpumux.FaultDeviceLost, f.Blameless)
	if kind != gpumux.FaultBadInput {
		require.Contains(s.t, f.Tail, "last words of "+e.how)
	}
	return f
}

// begun are the items that have begun, in order.
func (s *stand) begun() []string {
	data, err := os.ReadFile(s.log)
	require.NoError(s.t, err)
	return strings.Fields(string(data))
}

// program starts this test binary as another program with a task. The reader is the
// program's output.
func (s *stand) program(name string, task launch.Task) (*exec.Cmd, io.Reader) {
	s.t.Helper()
	text, err := json.Marshal(task)
	require.NoError(s.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM="+name, "TASK="+string(text), "RUNTIME="+runtimePath(s.t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, out
}

// left are the living processes with the slot's mark, without the templates and their
// waiting children.
func (s *stand) left() []string {
	return slices.DeleteFunc(s.marked(), isTemplate)
}

// templates are the templates and the children that wait in them.
func (s *stand) templates() []string {
	return slices.DeleteFunc(s.marked(), func(each string) bool { return !isTemplate(each) })
}

func isTemplate(command string) bool { return strings.Contains(command, " template ") }

func (s *stand) marked() []string { return marked(s.t, s.mark) }

// marked are the living processes that carry a mark in their environment, with their
// commands.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	var list []string
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range files {
		env, err := os.ReadFile(file)
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if len(command) == 0 {
			continue // it has ended since the line before, as a template's helpers do at any time
		}
		words := bytes.Split(append(env, command...), []byte{0})
		if err == nil && slices.ContainsFunc(words, func(word []byte) bool { return string(word) == mark }) {
			list = append(list, file+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return list
}

type object = map[string]any

// numbers returns the items of the results.
func numbers(t *testing.T, got []calls.Done) []int {
	t.Helper()
	list := []int{}
	for _, d := range got {
		require.Nil(t, d.Fault)
		var value [2]int
		require.NoError(t, json.Unmarshal(d.Value, &value))
		list = append(list, value[0])
	}
	return list
}

// nativeDir is the folder of native; TestMain deletes it.
var nativeDir string

// native is the compiled testdata/native.cpp, or "" where there is no compiler.
var native = sync.OnceValue(func() string {
	var err error
	if nativeDir, err = os.MkdirTemp("", "gpumux-native-"); err != nil {
		return ""
	}
	path := filepath.Join(nativeDir, "native.so")
	for _, compiler := range [][]string{{"g++"}, {"cc", "-x", "c"}} {
		if exec.Command(compiler[0], append(compiler[1:], "-O0", "-shared", "-fPIC", "-o", path, "testdata/native.cpp")...).Run() == nil {
			return path
		}
	}
	return ""
})

// state returns the letter for the state of a process, given as its folder in /proc. It
// is empty when the process is gone.
func state(process string) string {
	stat, _ := os.ReadFile(filepath.Join(process, "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:min(1, len(rest))]
}
