package gpumux_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestGPUUse_String(t *testing.T) {
	second := gpumux.Duration(time.Second)
	for want, use := range map[string]gpumux.GPUUse{
		"0% busy": {Time: 1},
		"38% busy at 212 W, 21.2 kJ, 212 J per item; its items leave it idle: try more slots per GPU, or stages for what they do on the CPU": {
			Time: 100 * second, Computing: 38 * second, Energy: 21200, Slots: 400 * second, Busy: 350 * second, Items: 100},
		"95% busy at 700 W, 70 kJ, 700 J per item; cost 0.0512; slowed by heat or for want of power 12% of the time": {
			Time: 100 * second, Computing: 95 * second, Energy: 70000, Slowed: 12 * second, Cost: 0.0512345, Items: 100},
		"95% busy at 1000 W, 1 MJ, 10 kJ per item": {Time: 1000 * second, Computing: 950 * second, Energy: 999.9e3, Items: 100},
		"38% busy": {Time: 100 * second, Computing: 38 * second, Slots: 400 * second, Busy: 300 * second, Items: 1}, // its slots waited for something else
	} {
		require.Equal(t, want, use.String())
	}
	require.Nil(t, gpumux.GPUUse{}.Known())
	require.Empty(t, gpumux.GPUUse{}.Known().String())
	var sum gpumux.GPUUse
	for range 2 {
		sum.Add(&gpumux.GPUUse{Time: 3, Computing: 2, Slowed: 1, Energy: 1.5, Cost: 0.25, Slots: 5, Busy: 4, Items: 2})
	}
	sum.Add(nil)
	require.Equal(t, gpumux.GPUUse{Time: 6, Computing: 4, Slowed: 2, Energy: 3, Cost: 0.5, Slots: 10, Busy: 8, Items: 4}, sum)
}
