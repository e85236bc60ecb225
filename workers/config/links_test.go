package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

// Slots of several GPUs get those with the best links, unless the file names the order.
func TestGroups_HaveTheBestLinks(t *testing.T) {
	devices := func(rows ...string) (all []gpu.Device) {
		for i, row := range rows {
			all = append(all, gpu.Device{Index: i, Kind: gpu.KindGPU, UUID: fmt.Sprint(i), Links: row})
		}
		return all
	}
	bridges := devices("X SYS NVL SYS", "SYS X SYS NVL", "NVL SYS X SYS", "SYS NVL SYS X")
	switches := devices("X SYS PIX PHB SYS SYS", "SYS X SYS SYS PHB PIX", "PIX SYS X PHB SYS SYS", "PHB SYS PHB X SYS SYS", "SYS PHB SYS SYS X PHB", "SYS PIX SYS SYS PHB X")
	for name, host := range map[string]struct {
		devices  []gpu.Device
		selected gpu.Selection
		perSlot  int
		want     string
	}{
		"pairs of NVLink":        {bridges, gpu.Selection{"all"}, 2, "0,2 1,3"},
		"of those that are left": {bridges[1:], gpu.Selection{"All"}, 3, "1,3,2"},
		"three on each side":     {switches, gpu.Selection{"all"}, 3, "0,2,3 1,5,4"},
		"named":                  {bridges, gpu.Selection{"0", "1", "2", "3"}, 2, "0,1 2,3"},
		"one each":               {bridges, gpu.Selection{"all"}, 1, "0 1 2 3"},
		"nobody tells":           {devices("", "", "", ""), gpu.Selection{"all"}, 2, "0,1 2,3"},
	} {
		t.Run(name, func(t *testing.T) {
			var r report
			var groups []string
			for _, g := range (Pool{Devices: host.selected, GPUsPerSlot: host.perSlot}).groups(host.devices, "pools[0]", &r) {
				groups = append(groups, g.Name)
			}
			require.Equal(t, host.want, strings.Join(groups, " "))
		})
	}
}
