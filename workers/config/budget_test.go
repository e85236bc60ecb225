package config

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

func TestBudgets_CountAgainstWhatIsLeftOfADevice(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{Static: []gpu.Device{
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
	require.Equal(t, []int{6, 6}, []int{placements[0].MaxSlots, placements[0].Fit})
}

// No byte of a device is promised twice: what a valid file lets its pools take at once
// fits into what they may have of each device.
func TestPlacements_PromiseNoByteTwice(t *testing.T) {
	const gib = 1 << 30
	r := rand.New(rand.NewPCG(11, 5))
	valid := 0
	for range 3000 {
		var devices []gpu.Device
		for i := range 1 + r.IntN(4) {
			devices = append(devices, gpu.Device{Index: i, Kind: gpu.KindGPU, UUID: fmt.Sprintf("GPU-%d", i), Name: "G",
				Memory: uint64(8+r.IntN(24)) * gib, Reserved: uint64(r.IntN(2)) * gib})
		}
		inventory, err := gpu.Open(t.Context(), gpu.Options{Static: devices})
		require.NoError(t, err)
		c := Config{Tasks: map[string]Task{"t": {Command: []string{"cat"}}}}
		for p := range 1 + r.IntN(3) {
			pool := Pool{Name: fmt.Sprintf("p%d", p), Memory: gpumux.Size(r.IntN(12)) * gib, Slots: Slots(1 + r.IntN(4)), Devices: gpu.Selection{"all"}}
			if pool.Memory > 0 && r.IntN(3) == 0 {
				pool.Reserve = gpumux.Size(1+r.IntN(4)) * gib
			}
			if r.IntN(3) == 0 {
				pool.Slots = AutoSlots
			}
			if len(devices)%2 == 0 && r.IntN(3) == 0 {
				pool.GPUsPerSlot = 2
			}
			if r.IntN(2) == 0 {
				pool.Devices = gpu.Selection{fmt.Sprint(r.IntN(len(devices)))}
			}
			c.Pools = append(c.Pools, pool)
		}
		placements, _, err := c.Plan(inventory)
		if err != nil {
			continue
		}
		valid++
		for _, d := range devices {
			sum, reserve := uint64(0), uint64(0)
			for _, p := range placements {
				if p.uses(d) {
					sum += uint64(p.Memory) / uint64(max(1, p.GPUsPerSlot)) * uint64(p.MaxSlots)
					reserve = max(reserve, uint64(p.Reserve))
				}
			}
			require.LessOrEqual(t, sum, d.Memory-d.Reserved-reserve, "%+v on %+v", c.Pools, devices)
		}
		for _, p := range placements {
			for _, g := range p.Groups {
				require.GreaterOrEqual(t, p.Whole(g, placements), p.Memory)
			}
		}
	}
	require.Greater(t, valid, 300)
}
