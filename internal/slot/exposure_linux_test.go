package slot_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

const exposed = `
import subprocess
def item(x):
    own = open("/proc/self/oom_score_adj").read()
    return [int(own), int(subprocess.check_output(["cat", "/proc/self/oom_score_adj"]))]
`

// exposure reads how much the kernel's out-of-memory killer prefers a process.
func exposure(t *testing.T, pid any) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%v/oom_score_adj", pid))
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return n
}

// When memory runs out, the kernel kills task processes first, then templates, and the
// worker last.
func TestExposure_TaskProcessesGoBeforeTheWorker(t *testing.T) {
	t.Parallel()
	f := newForge(t, exposed)
	s := f.slot("cpu/0", nil)
	worker := exposure(t, "self")
	task := min(worker+500, 1000)
	both := fmt.Sprintf("[%d,%[1]d]", task)
	require.Equal(t, []string{both}, f.run(s, "item", 0))
	require.Equal(t, min(worker+250, 1000), exposure(t, f.pid()), "its template")

	for name, change := range map[string]func(*launch.Task){
		"persistent": func(t *launch.Task) { t.Mode = gpumux.ModePersistent },
		"spawn":      func(t *launch.Task) { t.Fresh = launch.Spawn },
	} {
		task := f.task("item")
		change(&task)
		got, err := run(t, s, task, slot.Call{Call: calls.Call{Mode: task.Mode}, Work: work(0)})
		require.NoError(t, err)
		require.Equal(t, both, string(got[0].Value), name)
	}

	// A command may run before the worker has set its value.
	wait := fmt.Sprintf("while read -r by </proc/$$/oom_score_adj; [ $by = %d ]; do sleep 0.01; done; echo $by", worker)
	got, err := run(t, s, launch.Task{Name: "wait", Command: []string{"sh", "-c", wait}}, slot.Call{Call: calls.Call{Timeout: time.Minute}, Work: work(0)})
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(task), string(got[0].Value))
}
