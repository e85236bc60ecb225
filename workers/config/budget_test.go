package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func TestBudgets_CountAgainstWhatIsLeftOfADevice(t *testing.T) {
	inventory, err := gpu.Open(gpu.Options{Static: []gpu.Device{
		{Kind: gpu.KindGPU, UUID: "GPU-aaaa", Name: "T4", Memory: 16 << 30, Reserved: 512 << 20},
		{Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 64 << 30},
	}})
	require.NoError(t, err)
	c := Config{Store: "file://" + t.TempDir(), Tasks: map[string]Task{"t": {Command: []string{"/bin/sh"}}}}
	for name, test := range map[string]struct {
		pools []Pool
		want  string
	}{
		"what the driver keeps": {[]Pool{{Name: "a", Slots: 4, Memory: 4 << 30}},
			"pools[0].memory: 4 × 4GiB in pool a is more than the 15.5GiB of 0 (GPU-aaaa, T4), which has 16GiB less 512MiB that the driver " +
				"keeps; lower memory or slots"},
		"the largest reserve": {[]Pool{{Name: "a", Slots: 3, Memory: 4 << 30, Reserve: 1 << 30}, {Name: "b", Memory: 2 << 30, Reserve: 2 << 30}},
			"pools[1].memory: 3 × 4GiB in pool a + 1 × 2GiB in pool b is more than the 13.5GiB of 0 (GPU-aaaa, T4), which has 16GiB less " +
				"512MiB that the driver keeps and 2GiB of reserve; lower memory, slots or reserve"},
		"a reserve without a budget": {[]Pool{{Name: "a", Reserve: 1 << 30}},
			"pools[0].reserve: 1GiB without memory; nothing keeps a slot without a budget from taking it"},
		"nothing left": {[]Pool{{Name: "a", Slots: AutoSlots, Reserve: 20 << 30}},
			"pools[0].reserve: 20GiB leave nothing of the 15.5GiB of 0 (GPU-aaaa, T4); lower reserve"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Pools = test.pools
			require.ErrorContains(t, c.Validate(inventory), test.want)
		})
	}

	// So do the slots of slots: auto, and what a call gets that has the device whole.
	c.Pools = []Pool{{Name: "a", Slots: AutoSlots, Memory: 2 << 30, Reserve: 3 << 30}}
	placements, _, err := c.Plan(inventory)
	require.NoError(t, err)
	require.Equal(t, []int{6, 6}, []int{placements[0].Most, placements[0].Fit})
}
