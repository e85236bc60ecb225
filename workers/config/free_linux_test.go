package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestConfig_DevicesThatAreFree(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{
		{Total: 24 << 30, Free: 2 << 30, Processes: []gputest.Process{{PID: 4711, Memory: 22 << 30}}},
		{Total: 24 << 30, Free: 20 << 30, Processes: []gputest.Process{{PID: 4712, Memory: gputest.Unknown}}},
		{Total: 24 << 30, Free: 24<<30 - 1<<29, Reserved: 1 << 28},
	}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: m.Library, IgnoreVisible: true})
	require.NoError(t, err)
	defer inventory.Close()
	chosen := func(p Pool) (indices []int, err error) {
		p.Name, p.Devices = "gpu", gpu.Selection{"free"}
		placements, _, err := Config{Tasks: map[string]Task{"t": {Command: []string{"cat"}}}, Pools: []Pool{p}}.Plan(inventory)
		for _, d := range Devices(placements) {
			indices = append(indices, d.Index)
		}
		return indices, err
	}
	for _, c := range []struct {
		pool Pool
		want []int
	}{
		{Pool{}, []int{2}},
		{Pool{Slots: 4, Memory: 1 << 29}, []int{0, 1, 2}},
		{Pool{Slots: 4, Memory: 4 << 30}, []int{1, 2}},
		{Pool{Slots: 1, Memory: 42 << 30, GPUsPerSlot: 2}, nil},
		{Pool{Slots: 1, Memory: 20 << 30, GPUsPerSlot: 2}, []int{1, 2}},
	} {
		got, err := chosen(c.pool)
		require.Equal(t, c.want, got, "%+v %v", c.pool, err)
	}
	_, err = chosen(Pool{Slots: 1, Memory: 24 << 30})
	require.ErrorContains(t, err, "pools[0].devices: no GPU has 24GiB free: of 0 (GPU-00000000-0000-0000-0000-000000000000, NVIDIA Test GPU) "+
		"others hold 22GiB of 24GiB (process 4711 22GiB); of 1 (")
	require.ErrorContains(t, err, "others hold 4GiB of 24GiB (process 4712); of 2 (")
	require.ErrorContains(t, err, "; wait, lower memory or slots, or name devices")
}
