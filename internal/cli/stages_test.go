package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/workers/config"
)

func TestStageOf(t *testing.T) {
	for word, want := range map[string]gpumux.Stage{
		"embed":                {Task: "embed"},
		"embed@gpu":            {Task: "embed", Ladder: []string{"gpu"}},
		"a.py:f@big,cpu":       {Task: "a.py:f", Ladder: []string{"big", "cpu"}},
		"/home/me@work/a.py:f": {Task: "/home/me@work/a.py:f"},
		"/me@work/a.py:f@cpu":  {Task: "/me@work/a.py:f", Ladder: []string{"cpu"}},
		"a@b.py:f":             {Task: "a@b.py:f"},
	} {
		require.Equal(t, want, stageOf(word), word)
	}
}

// placed reads the words of `gpumux map --local`.
func placed(t *testing.T, words ...string) *mapFlags {
	t.Helper()
	f := &mapFlags{}
	c := mapCommand(newApp(Options{}))
	c.ResetFlags()
	f.register(c)
	require.NoError(t, c.ParseFlags(append(words, "--local", "--range", "0:3")))
	require.NoError(t, f.check(c, c.Flags().Args()))
	return f
}

func TestReadTasks_Pools(t *testing.T) {
	f := placed(t, "a.py:load", "b.py:embed", "c.py:pack", "--slots", "cpu=6,gpu=auto", "--keep", "load", "--attempts", "3")
	require.Equal(t, "stages: load on cpu, embed on gpu, pack on cpu", f.assigned)
	require.Equal(t, []config.Pool{{Name: "cpu", Slots: 6}, {Name: "gpu", Slots: config.AutoSlots}}, f.slots)
	require.Equal(t, []gpumux.Stage{{Task: "a.py:load", Ladder: []string{"cpu"}, Keep: true}, {Task: "b.py:embed", Ladder: []string{"gpu"}}, {Task: "c.py:pack", Ladder: []string{"cpu"}}}, f.input.Stages)
	pools := []config.Pool{{Name: "cpu", Slots: 4}, {Name: "gpu", Slots: 1}}
	require.NoError(t, f.size(pools))
	require.Equal(t, []config.Pool{{Name: "cpu", Slots: 6}, {Name: "gpu", Slots: config.AutoSlots}}, pools)

	f = placed(t, "a.py:load", "b.py:embed@gpu,cpu", "--pool", "cpu")
	require.Empty(t, f.assigned, "what was said need not be told")
	require.Equal(t, []string{"cpu", "gpu"}, f.input.Pools())

	f = placed(t, "a.py:load@cpu", "--slots", "cpu=2")
	require.Equal(t, "a.py:load", f.input.Task)
	require.Equal(t, []string{"cpu"}, f.input.Ladder)
	require.Nil(t, f.input.Stages)

	f = placed(t, "--stage", `{"task":"a.py:f","attempts":3,"timeout":1.5}`, "--stage", `{"task":"b.py:g","ladder":["cpu"]}`, "--pool", "gpu", "--backoff", "1s")
	require.Equal(t, 3, f.input.Steps()[0].Attempts)
	require.Equal(t, []string{"gpu", "cpu"}, f.input.Pools())
}

func TestOwnPools(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{NoNVML: true})
	require.NoError(t, err)
	stages := []gpumux.Stage{{Task: "a.py:f"}, {Task: "b.py:g"}, {Task: "c.py:h"}}
	o := local.Options{Inventory: inventory, Pools: []config.Pool{{Name: "gpu", Devices: gpu.Selection{"all"}}}}
	require.ErrorContains(t, ownPools(&o, stages), "a.py:f@cpu b.py:g@gpu c.py:h@cpu")
	o.Pools[0].Devices = gpu.Selection{"cpu"}
	require.NoError(t, ownPools(&o, stages))
	require.Equal(t, "stages: f on cpu, g on cpu-2, h on cpu-3", placesOf(stages))
	require.Len(t, o.Pools, 3)
	require.Equal(t, "cpu-3", o.Pools[2].Name)
}
