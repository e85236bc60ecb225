package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/gpu/gputest"
)

func TestConfig_ComputeModes(t *testing.T) {
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}, {Mode: 3}, {Mode: 2}}})
	inventory, err := gpu.Open(gpu.Options{Library: m.Library, IgnoreVisible: true})
	require.NoError(t, err)
	defer inventory.Close()
	validate := func(slots Slots, devices ...string) error {
		return Config{Tasks: map[string]Task{"t": {Command: []string{"cat"}}}, Pools: []Pool{{Name: "gpu", Devices: devices, Slots: slots}}}.
			Validate(inventory)
	}
	require.NoError(t, validate(4, "0"))
	require.NoError(t, validate(1, "1"))
	for _, slots := range []Slots{2, AutoSlots} {
		require.ErrorContains(t, validate(slots, "0", "1"), "in compute mode exclusive_process and lets one process in; use slots: 1")
	}
	require.ErrorContains(t, validate(1, "2"), "prohibited, which lets no process in")
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control"), nil, 0o600))
	require.NoError(t, validate(2, "1"), "MPS shares it")
}
