package slot_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/slot"
)

const affine = `
import os, subprocess, sys
child = "import os; print(sorted(os.sched_getaffinity(0)))"
def item(x):
    assert subprocess.check_output([sys.executable, "-c", child]).decode() == "%s\n" % sorted(os.sched_getaffinity(0))
    return sorted(os.sched_getaffinity(0))
`

// However a slot's process starts, it and its children run on the slot's processors, and
// those of other slots on theirs.
func TestCores_OfASlotsProcesses(t *testing.T) {
	t.Parallel()
	usable := process.Cores()
	require.NotEmpty(t, usable)
	f := newForge(t, affine)
	last := usable[len(usable)-1:]
	one := f.slot("cpu/0", func(o *slot.Options) { o.Cores = last })
	for s, cores := range map[*slot.Slot][]int{one: last, f.slot("cpu/1", nil): usable} {
		text, err := json.Marshal(cores)
		require.NoError(t, err)
		want := string(text)
		require.Equal(t, []string{want}, f.run(s, "item", 0), "forked")
		task := f.task("item")
		task.Mode = gpumux.ModePersistent
		got, err := run(t, s, task, slot.Call{Call: calls.Call{Mode: task.Mode}, Work: work(0)})
		require.NoError(t, err)
		require.Equal(t, want, string(got[0].Value))
		command := launch.Task{Name: "nproc", Command: []string{"nproc"}}
		got, err = run(t, s, command, slot.Call{Work: work(0)})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(len(cores)), string(got[0].Value))
	}
}
