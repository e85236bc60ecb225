package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

func TestRoom_KeepsTheFrameworkBelowTheBudget(t *testing.T) {
	d := gpu.Device{Kind: gpu.KindGPU, UUID: "GPU-a", Memory: 80 << 30}
	one := config.Group{Devices: []gpu.Device{d}}
	for _, c := range []struct {
		name  string
		pool  config.Pool
		group config.Group
		want  gpumux.Size
	}{
		{"a budget", config.Pool{Memory: 8 << 30, GPUsPerSlot: 1}, one, 7 << 30},
		{"a small budget keeps most of itself", config.Pool{Memory: 1 << 30, GPUsPerSlot: 1}, one, 768 << 20},
		{"two devices share it", config.Pool{Memory: 16 << 30, GPUsPerSlot: 2}, config.Group{Devices: []gpu.Device{d, d}}, 7 << 30},
		{"no budget", config.Pool{GPUsPerSlot: 1}, one, 0},
		{"the CPU", config.Pool{Memory: 8 << 30, GPUsPerSlot: 1}, config.Group{Devices: []gpu.Device{{Kind: gpu.KindCPU}}}, 0},
	} {
		require.Equal(t, c.want, Room(c.pool, c.group), c.name)
	}
}
