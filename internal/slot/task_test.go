package slot_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

func TestSlot_ABadTaskIsBadInput(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.py"), []byte("import no_such_module\ndef f(x): return x\n"), 0o644))
	_, err := run(t, s, launch.Task{Name: "f", Python: "broken.py:f", Dir: dir}, slot.Call{Work: work(1)})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Equal(t, "start", f.Op)
	require.Contains(t, f.Message, "no_such_module")
	require.Contains(t, f.Traceback, "broken.py")

	_, err = run(t, s, python(dir, "dubble"), slot.Call{Work: work(1)})
	f = fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Contains(t, f.Message, "double", "it says what there is")

	_, err = run(t, s, launch.Task{Name: "f", Python: "tasks.py:double", Dir: dir, Interpreter: "no-such-python"}, slot.Call{Work: work(1)})
	f = fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Contains(t, f.Error(), "no-such-python")
}

// The worker starts Python to ask for its path, also with no more of the environment than
// a task gets.
func TestSlot_AsksThePythonWithoutCredentials(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s, dir := newSlot(t), folder(t)
	seen, python := filepath.Join(dir, "seen"), filepath.Join(dir, "python")
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\nenv >>'"+seen+"'\nexec python3 \"$@\"\n"), 0o755))
	task := launch.Task{Name: "double", Python: "tasks.py:double", Dir: dir, Interpreter: python}
	_, err := run(t, s, task, slot.Call{Work: work(1)})
	require.NoError(t, err)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.Contains(t, string(text), "PATH=")
	require.NotContains(t, string(text), "AWS_SECRET_ACCESS_KEY")
}

// A folder's tasks are the functions that its files define, not what a name stands for
// after the import.
func TestSlot_OwnRefusesWhatAModuleHasFromElsewhere(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "taken.py"), []byte(`import functools
def system(item): ...
from os import *
def popen(item): ...
popen = __import__("os").popen
@functools.lru_cache
def cached(item): return item + 1
def wrap(function): return functools.wraps(function)(lambda item: function(item))
@wrap
def wrapped(item): return item + 2
`), 0o644))
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		for _, function := range []string{"system", "popen"} {
			task := launch.Task{Name: function, Python: "taken.py:" + function, Dir: dir, OwnModule: true, Mode: mode}
			_, err := run(t, s, task, slot.Call{Work: work("touch ran")})
			f := fault(t, err)
			require.Equal(t, gpumux.FaultBadInput, f.Kind)
			require.Contains(t, f.Message, function+" in taken.py comes from ")
			require.NoFileExists(t, filepath.Join(dir, "ran"))
		}
		for function, want := range map[string]string{"cached": "2", "wrapped": "3"} {
			task := launch.Task{Name: function, Python: "taken.py:" + function, Dir: dir, OwnModule: true, Mode: mode}
			got, err := run(t, s, task, slot.Call{Work: work(1)})
			require.NoError(t, err)
			require.JSONEq(t, want, string(got[0].Value))
		}
	}
}

func TestSlot_TheEnvironmentIsClean(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("TEMPORAL_API_KEY", "secret")
	t.Setenv("WANTED", "yes")
	dir := folder(t)
	s := slot.New(slot.Options{Name: "gpu/0", Device: "GPU-1", Runtime: runtimePath(t), Env: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1", "OMP_NUM_THREADS": "1"}})
	defer s.Stop(context.Background())
	task := python(dir, "environ")
	task.PassEnv = []string{"WANTED"}
	task.Env = map[string]string{"MINE": "1", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "4"}
	got, err := run(t, s, task, slot.Call{Work: work(1)})
	require.NoError(t, err)
	var env map[string]string
	require.NoError(t, json.Unmarshal(got[0].Value, &env))
	require.NotContains(t, env, "AWS_SECRET_ACCESS_KEY")
	require.NotContains(t, env, "TEMPORAL_API_KEY")
	require.Equal(t, "yes", env["WANTED"])
	require.Equal(t, "1", env["MINE"])
	require.Equal(t, "4", env["OMP_NUM_THREADS"], "a task may choose its threads")
	require.Equal(t, "GPU-1", env["CUDA_VISIBLE_DEVICES"], "but not its device")
}

func TestSlot_CommandsTakeTheItemAndGiveTheResult(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	const limit = 500 * time.Millisecond
	command := func(text bool, argv ...string) launch.Task {
		return launch.Task{Name: "c", Command: argv, Dir: dir, Text: text}
	}
	got, err := run(t, s, command(false, "sh", "-c", `read x; echo working >&2; echo "{\"got\": $x}"`), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1, 2)})
	require.NoError(t, err)
	require.Equal(t, `{"got": 2}`, string(got[1].Value))
	require.Equal(t, "working\n", got[1].Printed)

	got, err = run(t, s, command(true, "cat"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work("a\"b")})
	require.NoError(t, err)
	require.Equal(t, `"\"a\\\"b\""`, string(got[0].Value))

	got, err = run(t, s, command(true, "sh", "-c", `printf '  a\tb \r\n\n'; [ "$1" = 1 ] || printf '\377'`, "sh", "{}"), slot.Call{Work: work(1, 2)})
	require.NoError(t, err)
	require.Equal(t, `"  a\tb "`, string(got[0].Value))
	require.Contains(t, got[1].Fault.Message, `sh printed bytes that are not UTF-8 text to standard output: "  a\tb \r\n\n\xff"`)

	got, err = run(t, s, command(false, "sh", "-c", "echo no; echo why >&2; exit 3"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1, 2)})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, gpumux.FaultTaskError, got[0].Fault.Kind)
	require.Contains(t, got[0].Fault.Error(), "3")
	require.Equal(t, "why\n", got[0].Printed)

	got, err = run(t, s, command(false, "echo", "not json"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1)})
	require.NoError(t, err)
	require.Contains(t, got[0].Fault.Error(), "no JSON value")

	_, err = run(t, s, command(false, "sleep", "60"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1)})
	require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)

	_, err = run(t, s, command(false, "sh", "-c", "kill -SEGV $$"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1)})
	require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind)

	_, err = run(t, s, command(false, "./missing"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1)})
	require.Equal(t, gpumux.FaultBadInput, fault(t, err).Kind)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "windows.sh"), []byte("#!/bin/sh\r\necho 1\r\n"), 0o755))
	_, err = run(t, s, command(false, "./windows.sh"), slot.Call{Call: calls.Call{Timeout: limit}, Work: work(1)})
	require.Contains(t, fault(t, err).Hint, "without a line end of Windows")
}

func TestSlot_AGoTaskProcessSpeaksTheWire(t *testing.T) {
	s := newSlot(t)
	task := launch.Task{Name: "square", Program: []string{os.Args[0]}, Env: map[string]string{"GPUMUX_TEST_PROGRAM": "task"}}
	task.Env = map[string]string{}
	t.Setenv("GPUMUX_TEST_PROGRAM", "task")
	task.PassEnv = []string{"GPUMUX_TEST_PROGRAM"}
	got, err := run(t, s, task, slot.Call{Work: work(3, -1, 5)})
	require.NoError(t, err)
	require.Equal(t, "9", string(got[0].Value))
	require.Equal(t, "negative", got[1].Fault.Message)
	require.Equal(t, "25", string(got[2].Value))
}
