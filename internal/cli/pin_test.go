package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
)

func TestPin_FindsTheDevice(t *testing.T) {
	offer := func(host, pool string, devices ...string) fleet.Worker {
		return fleet.Worker{Offer: &gpumux.Describe{Host: host, Pools: []gpumux.PoolInfo{{Name: pool, Devices: devices}, {Name: "cpu", Devices: []string{"CPU"}}}}}
	}
	workers := []fleet.Worker{offer("a", "gpu", "GPU-5c89", "GPU-77ab"), {}, offer("b", "gpu", "GPU-5d00"), offer("c", "large", "GPU-5c11")}
	for name, want := range map[string][]string{"gpu-77": {"gpu@a/GPU-77ab"}, "GPU-5": {"gpu@a/GPU-5c89", "gpu@b/GPU-5d00"}, "GPU-9": nil} {
		rungs, offered := rungsOn(workers, "gpu", name)
		require.Equal(t, want, rungs, name)
		require.Equal(t, []string{"GPU-5c89", "GPU-77ab", "GPU-5d00"}, offered)
	}
}
