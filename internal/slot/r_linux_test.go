package slot_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

const tasksR = `
who <- function(item) list(libraries = Sys.getenv("R_LIBS_USER"))
hang <- function(item) repeat Sys.sleep(1)
dies <- function(item) if (item == 2) tools::pskill(Sys.getpid(), 6L) else item
`

// R's wire is two pipes.
func TestSlot_RInItsSlot(t *testing.T) {
	rig.WithoutR(t)
	t.Setenv("HOME", "/somebody")
	t.Setenv("R_LIBS_USER", "")
	dir := open(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.R"), []byte(tasksR), 0o644))
	main, err := runtimes.R(dir)
	require.NoError(t, err)
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", RRuntime: main, Home: t.TempDir(), Grace: 300 * time.Millisecond})
	defer s.Stop(context.Background())
	before := descendants(t)
	task := func(function string) launch.Task {
		return launch.Task{Name: function, R: "tasks.R:" + function, Dir: dir}
	}

	got, err := run(t, s, task("who"), slot.Call{Work: work(1)})
	require.NoError(t, err)
	require.Contains(t, string(got[0].Value), `"libraries":"/somebody/R/`)

	got, err = run(t, s, task("dies"), slot.Call{Work: work(1, 2, 3)})
	require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind)
	require.Len(t, got, 1, "what was answered before the death counts")
	_, err = run(t, s, task("hang"), slot.Call{Call: calls.Call{Timeout: 300 * time.Millisecond}, Work: work(1)})
	require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)
	require.NoError(t, s.Stop(context.Background()))
	require.ElementsMatch(t, before, descendants(t))
}
