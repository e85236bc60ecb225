package config

import (
	"slices"

	"github.com/gpumux/gpumux/gpu"
)

// closeness orders the kinds of links, the best last.
var closeness = map[string]int{"sys": 1, "node": 2, "phb": 3, "pxb": 4, "pix": 5, "internal": 6, "nvlink": 7}

// byLinks orders devices so that each k in a row are well connected: the first one that
// is left gets the device with the best link to it, then the one with the best links to
// both, and so on. Among equals the order stays.
func byLinks(devices []gpu.Device, k int, links []gpu.Link) (ordered []gpu.Device) {
	between := map[[2]string]gpu.Link{}
	for _, l := range links {
		between[[2]string{l.From, l.To}], between[[2]string{l.To, l.From}] = l, l
	}
	left := slices.Clone(devices)
	for len(left) > 0 {
		group := left[:1:1]
		left = left[1:]
		for len(group) < k {
			best, most := 0, []int{-1, 0}
			for i, d := range left {
				worth := []int{len(closeness), 0} // the worst kind, and the number of NVLinks
				for _, member := range group {
					l := between[[2]string{member.UUID, d.UUID}]
					worth[0], worth[1] = min(worth[0], closeness[l.Kind]), worth[1]+l.NVLinks
				}
				if slices.Compare(worth, most) > 0 {
					best, most = i, worth
				}
			}
			group = append(group, left[best])
			left = slices.Delete(left, best, best+1)
		}
		ordered = append(ordered, group...)
	}
	return ordered
}
