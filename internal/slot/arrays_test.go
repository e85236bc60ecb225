package slot_test

import (
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

const stages = `
import gpumux, sys

def made(x):
    import numpy as np
    return eval(x)

def same(x): return x

@gpumux.batch(max=3, limit=2, cost=lambda x: 1)
def batch(xs): return xs

@gpumux.concurrent(max=2)
async def window(x): return x

class Object:
    def __call__(self, x): return x

def kind(x):
    if type(x) is list: return [kind(each) for each in x]
    if type(x) is dict: return {key: kind(each) for key, each in x.items()}
    return type(x).__name__

seen = set()
def again(x):
    if type(x) is not dict: return x
    array = x["a"]
    array += 1
    if "again" in seen: return x
    seen.add("again")
    raise ValueError("no")

def picky(x): raise ValueError(kind(x))
def imported(x): return "numpy" in sys.modules
`

// stage runs a function over values with arrays.
func stage(t *testing.T, s *slot.Slot, task launch.Task, call calls.Call, values []gpumux.Result) []calls.Done {
	t.Helper()
	call.Arrays = true
	got, err := run(t, s, task, slot.Call{Call: call, Work: &gputest.Work{From: resultItems(values)}})
	require.NoError(t, err)
	require.Len(t, got, len(values))
	return got
}

func resultItems(values []gpumux.Result) iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		for i, r := range values {
			if !yield(calls.Item{Index: int64(i), Value: r.Value, Arrays: r.Arrays}, nil) {
				return
			}
		}
	}
}

// returned are values with arrays, and two without, as a task has returned them.
func returned(t *testing.T, s *slot.Slot, task launch.Task) (values []gpumux.Result) {
	t.Helper()
	task.Python = "tasks.py:made"
	got, err := run(t, s, task, slot.Call{Call: calls.Call{Arrays: true}, Work: work(
		`np.arange(6, dtype="u1").reshape(1, 2, 3)`, `1`, `{"a": np.array([0.1, float("nan")], "f4"), "b": [{"c": np.array([[True]])}, "é\n"]}`,
		`np.array([[0.1, -2]], ">f2").T`, `np.zeros((2, 0))`, `[np.array([2**63], "u8"), float("inf")]`,
	)})
	require.NoError(t, err)
	for i, want := range []bool{true, false, true, true, false, true} {
		require.Nil(t, got[i].Fault)
		require.Equal(t, want, got[i].Arrays != nil, i)
		values = append(values, got[i].Result)
	}
	return values
}

func results(got []calls.Done) (list []gpumux.Result) {
	for _, d := range got {
		list = append(list, gpumux.Result{Index: d.Index, Value: d.Value, Arrays: d.Arrays, Fault: d.Fault})
	}
	return list
}

func stageTask(t *testing.T, interpreter, function string) launch.Task {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(stages), 0o644))
	return launch.Task{Name: function, Python: "tasks.py:" + function, Dir: dir, Interpreter: interpreter}
}

// What a task has returned comes to the next one as it was, in every kind of process.
func TestSlot_ItemsWithArrays(t *testing.T) {
	interpreter := withModule(t, "numpy")
	s := newSlot(t)
	values := returned(t, s, stageTask(t, interpreter, "made"))
	for name, c := range map[string]struct {
		function string
		mode     gpumux.Mode
		fresh    launch.Fresh
	}{
		"Single":     {"same", gpumux.ModePersistent, ""},
		"Object":     {"Object", gpumux.ModePersistent, ""},
		"Batch":      {"batch", gpumux.ModePersistent, ""},
		"Concurrent": {"window", gpumux.ModePersistent, ""},
		"Forked":     {"same", gpumux.ModeFresh, launch.Fork},
		"Spawned":    {"same", gpumux.ModeFresh, launch.Spawn},
	} {
		t.Run(name, func(t *testing.T) {
			task := stageTask(t, interpreter, c.function)
			task.Mode, task.Fresh = c.mode, c.fresh
			require.ElementsMatch(t, values, results(stage(t, s, task, calls.Call{}, values)))
		})
	}
	kinds := stage(t, s, stageTask(t, interpreter, "kind"), calls.Call{}, values)
	require.JSONEq(t, `{"a":"ndarray","b":[{"c":"ndarray"},"str"]}`, string(kinds[2].Value))
	require.JSONEq(t, `"ndarray"`, string(kinds[0].Value))

	// Another try gets the item as it was.
	tried := stage(t, s, stageTask(t, interpreter, "again"), calls.Call{Attempts: 2}, values[2:3])
	require.Nil(t, tried[0].Fault)
	require.Contains(t, string(value(t, tried[0])), `"a":[1.1,`)

	// NumPy is imported where such an item comes, and no earlier.
	task := stageTask(t, interpreter, "imported")
	require.Equal(t, "false", string(stage(t, s, task, calls.Call{}, values[1:2])[0].Value))
	require.Equal(t, "true", string(stage(t, s, task, calls.Call{}, values[:1])[0].Value))
}

// value is a result as JSON.
func value(t *testing.T, d calls.Done) json.RawMessage {
	t.Helper()
	if d.Arrays == nil {
		return d.Value
	}
	text, err := arrays.Text(d.Arrays)
	require.NoError(t, err)
	return text
}

// A process that does not say that it takes arrays gets nested lists, and so does a
// command.
func TestSlot_ItemsWithArraysAsJSON(t *testing.T) {
	interpreter := withModule(t, "numpy")
	s := newSlot(t)
	values := returned(t, s, stageTask(t, interpreter, "made"))
	bare := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(bare, []byte("#!/bin/sh\nexec '"+interpreter+"' -S \"$@\"\n"), 0o755))
	for name, task := range map[string]launch.Task{
		"NoNumPy": stageTask(t, bare, "same"), "Command": {Name: "cat", Command: []string{"cat"}, Dir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			for i, d := range stage(t, s, task, calls.Call{}, values) {
				require.Nil(t, d.Fault)
				require.Nil(t, d.Arrays)
				require.Equal(t, string(value(t, calls.Done{Result: values[i]})), string(d.Value))
			}
		})
	}
}

func TestSlot_FaultsOfItemsWithArrays(t *testing.T) {
	interpreter := withModule(t, "numpy")
	s := newSlot(t)
	task := stageTask(t, interpreter, "picky")
	got := stage(t, s, task, calls.Call{}, returned(t, s, stageTask(t, interpreter, "made")))
	require.Equal(t, "array u1 1x2x3", got[0].Fault.Item)
	require.Equal(t, `{"a":array f4 2,"b":[{"c":array b1 1x1},"é\n"]}`, got[2].Fault.Item)
	require.Equal(t, "ndarray", got[0].Fault.Message)

	done, err := run(t, s, task, slot.Call{Work: &gputest.Work{From: resultItems([]gpumux.Result{
		{Value: json.RawMessage("1")}, {Arrays: []byte(strings.Repeat("\x02", 9))},
	})}})
	require.ErrorContains(t, err, "item 1 is damaged: an array of 8 bytes has no whole description; ")
	require.Len(t, done, 1, "the items before it ran")
}
