package workers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

func TestWorker_SlotsAbreast(t *testing.T) {
	group := func(uuids ...string) (g config.Group) {
		for _, uuid := range uuids {
			g.Devices = append(g.Devices, gpu.Device{Kind: gpu.KindGPU, UUID: uuid})
		}
		return g
	}
	one, two, both := group("one"), group("two"), group("one", "two")
	w := &Worker{placements: []config.Placement{
		{Groups: []config.Group{cpuGroup}, MaxSlots: 6}, {Groups: []config.Group{one, two}, MaxSlots: 2}, {Groups: []config.Group{both}, MaxSlots: 1},
	}}
	require.Equal(t, 11, w.abreast(cpuGroup, false), "the slots of all pools")
	require.Equal(t, 11, w.abreast(one, false))
	require.Equal(t, 6, w.abreast(cpuGroup, true), "others on the device wait")
	require.Equal(t, 9, w.abreast(one, true))
	require.Equal(t, 7, w.abreast(both, true))

	w.placements = []config.Placement{{Groups: []config.Group{cpuGroup}, MaxSlots: 4}}
	require.Equal(t, 4, w.abreast(cpuGroup, false))
	require.Equal(t, 1, w.abreast(cpuGroup, true))
}

// cpuGroup is the group of every pool on the CPU.
var cpuGroup = config.Group{Name: gpu.CPU, Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: gpu.CPU, Memory: 64 << 30}}}
