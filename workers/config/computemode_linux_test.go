package config

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestConfig_ComputeModes(t *testing.T) {
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}, {Mode: 3}, {Mode: 2}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: m.Library, IgnoreVisible: true})
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
	served := Pool{Name: "gpu", Devices: gpu.Selection{"1"}, Slots: 4, Sharing: "mps"}
	also, beside := served, served
	also.Name, also.Slots = "also", 2
	beside.Name, beside.Slots, beside.Sharing = "beside", 1, ""
	check := func(pools ...Pool) error {
		return Config{Tasks: map[string]Task{"t": {Command: []string{"cat"}}}, Pools: pools}.Validate(inventory)
	}
	t.Setenv("PATH", m.Folder+":"+os.Getenv("PATH"))
	listener, err := net.Listen("unix", filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control"))
	require.NoError(t, err)
	defer listener.Close()
	require.NoError(t, check(served, also), "the server is the one process")
	require.ErrorContains(t, check(served, beside), "pools[1].slots: 2 on 1 (")
	also.Slots = 45
	require.ErrorContains(t, check(served, also), "pools[1].slots: 49 with sharing: mps on 1 (")
}

func TestConfig_SharingThatCannotWork(t *testing.T) {
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "")
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}, {}, {Instances: []gputest.Instance{{}, {Number: 1}}}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: m.Library, IgnoreVisible: true})
	require.NoError(t, err)
	defer inventory.Close()
	check := func(p Pool, tasks ...Task) error {
		p.Name = "gpu"
		named := map[string]Task{"t": {Command: []string{"cat"}}}
		for i, task := range tasks {
			named[string(rune('a'+i))] = task
		}
		return Config{Tasks: named, Pools: []Pool{p}}.Validate(inventory)
	}
	const mig = "MIG-00000000-0000-0000-0002-000000000000"
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, check(Pool{Devices: gpu.Selection{"0"}, Sharing: "mps"}),
		"pools[0].sharing: mps, but nvidia-cuda-mps-control is not in PATH; install it")
	t.Setenv("PATH", m.Folder+":/usr/bin:/bin")
	for want, p := range map[string]Pool{
		"":                                 {Devices: gpu.Selection{"0", "1"}, Sharing: "mps", Slots: 4},
		"is a MIG instance":                {Devices: gpu.Selection{mig}, Sharing: "mps"},
		"cpu (":                            {Devices: gpu.Selection{"cpu"}, Sharing: "mps"},
		"gpus_per_slot: 2 with sharing":    {Devices: gpu.Selection{"0", "1"}, Sharing: "mps", GPUsPerSlot: 2},
		"has 48 clients at most":           {Devices: gpu.Selection{"0"}, Sharing: "mps", Slots: 49},
		"is no MIG instance; leave it out": {Devices: gpu.Selection{"all"}, Sharing: "mig"},
	} {
		if want == "" {
			require.NoError(t, check(p))
			continue
		}
		require.ErrorContains(t, check(p), want)
	}
	require.NoError(t, check(Pool{Devices: gpu.Selection{"2"}, Sharing: "mig", Slots: 2}), "all instances of a GPU")
}
