package config

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func TestConfig_DevicesByIndex(t *testing.T) {
	c := Config{
		Store: "file://" + t.TempDir(), Pools: []Pool{{Name: "gpu"}},
		Tasks: map[string]Task{"number": {Command: []string{"/bin/sh"}, VisibleDevices: "index"}, "uuid": {Command: []string{"/bin/sh"}}},
	}
	_, tasks, err := c.Plan(twoGPUs(t))
	require.NoError(t, err)
	for name, want := range map[string][]string{"number": {"1,0", ""}, "uuid": {"GPU-bbbb,GPU-aaaa", ""}} {
		task, err := tasks.Find(name)
		require.NoError(t, err)
		for i, visible := range []string{"GPU-bbbb,GPU-aaaa", ""} {
			env := task.Environ("", map[string]string{"CUDA_VISIBLE_DEVICES": visible})
			require.True(t, slices.Contains(env, "CUDA_VISIBLE_DEVICES="+want[i]), env)
		}
	}

	c.Tasks["number"] = Task{Command: []string{"/bin/sh"}, VisibleDevices: "pci"}
	require.ErrorContains(t, c.Validate(twoGPUs(t)), `tasks.number.visible_devices: "pci" is unknown; use uuid or index`)
	c.Tasks["number"] = Task{Command: []string{"/bin/sh"}, VisibleDevices: "index"}
	split := static(t,
		gpu.Device{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-aaaa", Name: "H100", MIG: true},
		gpu.Device{Index: 0, Kind: gpu.KindMIG, UUID: "MIG-cccc", Name: "1g.10gb", Parent: "GPU-aaaa"})
	require.ErrorContains(t, c.Validate(split), "tasks.number.visible_devices: index, but 0:0 (MIG-cccc, 1g.10gb) is a MIG instance")
}
