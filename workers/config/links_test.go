package config

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func order(devices []gpu.Device) string {
	var names []string
	for _, d := range devices {
		names = append(names, d.UUID)
	}
	return strings.Join(names, " ")
}

func someGPUs(n int) (devices []gpu.Device) {
	for i := range n {
		devices = append(devices, gpu.Device{Index: i, Kind: gpu.KindGPU, UUID: fmt.Sprint(i)})
	}
	return devices
}

// linked are the links of n GPUs: the kind for pairs that are not named, and NVLinks for
// those that are, such as "0-2:4".
func linked(n int, kind string, nvlinks ...string) (links []gpu.Link) {
	for i := range n {
		for j := i + 1; j < n; j++ {
			l := gpu.Link{From: fmt.Sprint(i), To: fmt.Sprint(j), Kind: kind}
			for _, text := range nvlinks {
				var a, b, count int
				fmt.Sscanf(text, "%d-%d:%d", &a, &b, &count)
				if a == i && b == j {
					l.Kind, l.NVLinks = "nvlink", count
				}
			}
			links = append(links, l)
		}
	}
	return links
}

func TestByLinks(t *testing.T) {
	for name, test := range map[string]struct {
		n, k  int
		links []gpu.Link
		want  string
	}{
		"nothing is known":             {4, 2, nil, "0 1 2 3"},
		"all are alike":                {4, 2, linked(4, "pix"), "0 1 2 3"},
		"bridges":                      {4, 2, linked(4, "sys", "0-2:4", "1-3:4"), "0 2 1 3"},
		"the best pair, if none loses": {4, 2, linked(4, "sys", "0-1:4", "0-2:12", "1-3:4", "2-3:4"), "0 2 1 3"},
		"more links, if the worst is":  {4, 2, linked(4, "sys", "0-1:2", "2-3:2", "0-3:4", "1-2:4"), "0 3 1 2"},
		"two islands of four":          {8, 4, linked(8, "sys", "0-2:1", "0-4:1", "0-6:1", "2-4:1", "2-6:1", "4-6:1", "1-3:1", "1-5:1", "1-7:1", "3-5:1", "3-7:1", "5-7:1"), "0 2 4 6 1 3 5 7"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, order(byLinks(someGPUs(test.n), test.k, test.links)))
		})
	}
}

func TestByLinks_KeepsEveryDevice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"sys", "node", "pix", "nvlink", "unknown"}
	for _, size := range [][2]int{{16, 2}, {16, 4}, {16, 8}, {12, 3}, {8, 8}} {
		links := linked(size[0], "sys")
		for i := range links {
			links[i].Kind, links[i].NVLinks = kinds[r.IntN(len(kinds))], r.IntN(4)
		}
		require.ElementsMatch(t, someGPUs(size[0]), byLinks(someGPUs(size[0]), size[1], links))
	}
}
