package workers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

func TestWorker_ProcessorsNearASlot(t *testing.T) {
	group := func(cores ...string) (g config.Group) {
		for _, each := range cores {
			g.Devices = append(g.Devices, gpu.Device{Kind: gpu.KindGPU, UUID: each, Cores: each})
		}
		return g
	}
	serve := func(groups ...config.Group) *Worker { return &Worker{placements: []config.Placement{{Groups: groups}}} }
	usable := []int{0, 1, 2, 3, 4, 5}
	first, second, both := group("0-2"), group("3-5,8"), group("0-2", "3-5,8")
	near := func(w *Worker, g config.Group) []int { return w.near(w.placements[0], g, usable) }

	two := serve(first, second)
	require.Equal(t, []int{0, 1, 2}, near(two, first))
	require.Equal(t, []int{3, 4, 5}, near(two, second), "8 is not for this worker")
	require.Empty(t, near(serve(both), both), "all are near")
	require.Empty(t, near(serve(first), first), "processors next to no GPU would be idle")
	require.Empty(t, near(serve(first, group("")), first), "nobody knows what is near the other")
	require.Empty(t, near(serve(first, second, group("")), group("")))
	require.Empty(t, two.near(config.Placement{Pool: config.Pool{Cores: "all"}}, first, usable), "the file says so")
	two.placements = append(two.placements, config.Placement{Groups: []config.Group{cpuGroup}})
	require.Empty(t, near(two, cpuGroup))
	require.Equal(t, []int{0, 1, 2}, near(two, first))
}
