package slot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// edited is a slot and a folder with a task, which imports near.py.
type edited struct {
	*testing.T
	dir  string
	slot *slot.Slot
}

func newEdited(t *testing.T) *edited {
	e := &edited{T: t, dir: t.TempDir(), slot: newSlot(t)}
	e.write("near.py", 1)
	text := `
import near, os
def item(x):
    if x == "edit": open(os.path.join(os.path.dirname(__file__), "near.py"), "w").write("value = 22222\n")
    return near.value
`
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "tasks.py"), []byte(text), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "run.sh"), []byte(`#!/bin/sh
read item
case "$item" in *edit*) echo "#" >> run.sh;; esac
echo "$item"
`), 0o755))
	return e
}

// write makes a module. Values with other numbers of digits change its size, by which
// Python's own caches see the change.
func (e *edited) write(name string, value int) {
	e.Helper()
	require.NoError(e, os.WriteFile(filepath.Join(e.dir, name), fmt.Appendf(nil, "value = %d\n", value), 0o644))
}

func (e *edited) task() launch.Task {
	return launch.Task{Name: "item", Python: "tasks.py:item", Dir: e.dir}
}

// run returns the values of the items and the edition that they ran with.
func (e *edited) run(task launch.Task, call slot.Call, items ...any) (got []string, edition string, err error) {
	e.Helper()
	call.Work = &gputest.Work{From: gputest.Values(items...), OnMeet: func(p calls.Process) error { edition = p.Edition; return nil }}
	done, err := run(e.T, e.slot, task, call)
	for _, d := range done {
		require.Nil(e, d.Fault)
		got = append(got, string(d.Value))
	}
	return got, edition, err
}

// A call does not use a process of another edition.
func TestEdition_ACallRunsWithTheCodeAsItIs(t *testing.T) {
	e := newEdited(t)
	got, first, err := e.run(e.task(), slot.Call{}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "1"}, got)
	require.Regexp(t, `^[0-9a-f]{6}$`, first)
	processes := e.slot.Stats().Processes
	_, again, err := e.run(e.task(), slot.Call{}, 0)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, processes, e.slot.Stats().Processes, "nothing has changed")

	e.write("near.py", 333)
	got, second, err := e.run(e.task(), slot.Call{}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"333", "333"}, got)
	require.NotEqual(t, first, second)
	got, same, err := e.run(e.task(), slot.Call{Call: calls.Call{Mode: gpumux.ModeFresh}}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"333"}, got)
	require.Equal(t, second, same, "of a template and what was forked from it")
}

// No item runs with other code than the call asks for, neither in the old process nor in
// a new one.
func TestEdition_GoneIsAFaultThatSaysWhatToDo(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		t.Run(string(mode), func(t *testing.T) {
			e := newEdited(t)
			_, began, err := e.run(e.task(), slot.Call{Call: calls.Call{Mode: mode}}, 0)
			require.NoError(t, err)
			e.write("near.py", 333)
			for range 2 {
				got, _, err := e.run(e.task(), slot.Call{Call: calls.Call{Mode: mode, Edition: began}}, 0, 1)
				gone := fault(t, err)
				require.Empty(t, got)
				require.Equal(t, gpumux.FaultBadInput, gone.Kind)
				require.Equal(t, "start", gone.Op)
				require.NotEmpty(t, gone.Edition)
				require.NotEqual(t, began, gone.Edition)
				for _, text := range []string{began, gone.Edition, filepath.Join(e.dir, "near.py"), "start a new map", "put the files back"} {
					require.Contains(t, gone.Error(), text)
				}
			}
			_, now, err := e.run(e.task(), slot.Call{Call: calls.Call{Mode: mode}}, 0)
			require.NoError(t, err)
			require.NotEqual(t, began, now)
			e.write("near.py", 1)
			got, back, err := e.run(e.task(), slot.Call{Call: calls.Call{Mode: mode, Edition: began}}, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"1"}, got)
			require.Equal(t, began, back)
		})
	}
}

// A process that starts in the middle of a call has the code that the call began with, or
// it does not start.
func TestEdition_EditedInTheMiddle(t *testing.T) {
	for name, task := range map[string]func(*edited) launch.Task{
		"fork": (*edited).task,
		"spawn": func(e *edited) launch.Task {
			task := e.task()
			task.Fresh = launch.Spawn
			return task
		},
		"command": func(e *edited) launch.Task {
			return launch.Task{Name: "item", Command: []string{"./run.sh"}, Dir: e.dir}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdited(t)
			got, _, err := e.run(task(e), slot.Call{Call: calls.Call{Mode: gpumux.ModeFresh}}, "a", "b", "edit", "c", "d")
			gone := fault(t, err)
			require.NotEmpty(t, gone.Edition)
			if name == "command" {
				require.Equal(t, []string{`"a"`, `"b"`}, got, "nobody knows what it had read by then")
			} else {
				require.Equal(t, []string{"1", "1", "1"}, got)
			}
		})
	}
}

// Code that changes at each import has no edition, and a fault says so.
func TestEdition_CodeThatChangesAtEachImport(t *testing.T) {
	e := newEdited(t)
	text := fmt.Sprintf("import os, time\nopen(%q, 'w').write(str(time.time_ns()))\nimport made\ndef item(x): return x\n", filepath.Join(e.dir, "made.py"))
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "tasks.py"), []byte(text), 0o644))
	got, _, err := e.run(e.task(), slot.Call{}, 0)
	require.Empty(t, got)
	require.Contains(t, fault(t, err).Error(), filepath.Join(e.dir, "made.py"))
}
