package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func TestLocal_UsesTheCPUWithoutGPU(t *testing.T) {
	dir := site(t)
	c := Local(LocalOptions{
		Slots: 3, Memory: 1 << 30, Dir: dir, TasksDir: "tasks",
		Tasks: map[string]Task{"embed.py:embed": {Python: "embed.py:embed"}},
	})
	for _, test := range []struct {
		inventory *gpu.Inventory
		groups    int
		first     string
	}{{onlyCPU(t), 1, gpu.CPU}, {twoGPUs(t), 2, "GPU-aaaa"}} {
		placements, tasks, err := c.Plan(test.inventory)
		require.NoError(t, err)
		require.Equal(t, "gpu", placements[0].Name)
		require.Len(t, placements[0].Groups, test.groups)
		require.Equal(t, test.first, placements[0].Groups[0].Name)
		for _, name := range []string{"embed.py:embed", "sweep:fit", "score.py:score"} {
			_, err := tasks.Find(name)
			require.NoError(t, err)
		}
	}
}

func TestLocal_Mistakes(t *testing.T) {
	c := Local(LocalOptions{Slots: -2, Dir: site(t), Tasks: map[string]Task{"x": {Python: "gone.py:f"}}})
	err := c.Validate(onlyCPU(t))
	require.ErrorContains(t, err, "2 mistakes in the worker's configuration\n  pools[0].slots: -2 is outside 1 to 256\n  tasks.x.python: ")
}
