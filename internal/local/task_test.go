package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/workers/config"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o755))
}

// Each stage has its edition, and tasks of one name in two folders are two.
func TestFindTask_Stages(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("other", 0o755))
	write(t, "a.py", "def f(x): return x")
	write(t, "other/a.py", "def f(x): return -x")
	find := func(first string, then ...string) *local.Task {
		task, err := local.FindTask(first, config.Task{}, then...)
		require.NoError(t, err)
		return task
	}
	editions := func() []string { return strings.Split(find("a.py:f", "other/a.py:f", "a.py:f").Edition, "-") }
	before := editions()
	require.Len(t, before, 3)
	require.Equal(t, before[0], before[2])
	require.NotEqual(t, before[0], before[1])
	write(t, "other/a.py", "def f(x): return 1")
	after := editions()
	require.NotEqual(t, before[1], after[1])
	before[1] = after[1]
	require.Equal(t, before, after)
	require.Len(t, find("a.py:f", "other/a.py:f").Files(), 2)

	_, err := local.FindTask("a.py:f", config.Task{}, "none.py:f")
	require.ErrorContains(t, err, "TASK none.py:f: there is no file none.py")
}

func TestPools_OfTheCPUByName(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{NoNVML: true})
	require.NoError(t, err)
	defer inventory.Close()
	pools, noGPU, err := local.Pools(inventory, []string{"cpu", "cpu-2"}, config.Pool{Slots: 3})
	require.NoError(t, err)
	require.Empty(t, noGPU, "no GPU is missed")
	require.Len(t, pools, 2)
	for i, name := range []string{"cpu", "cpu-2"} {
		require.Equal(t, config.Pool{Name: name, Devices: gpu.Selection{"cpu"}, Slots: 3}, pools[i])
	}
	require.False(t, local.OnCPU("cpus"))
}
