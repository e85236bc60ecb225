package config

import (
	"cmp"
	"math/bits"

	"github.com/gpumux/gpumux/gpu"
)

// closeness orders the kinds of links, the best last.
var closeness = map[string]int{"sys": 1, "node": 2, "phb": 3, "pxb": 4, "pix": 5, "internal": 6, "nvlink": 7}

// quality is what a group of devices is worth: by its worst pair, then by the number of NVLinks.
type quality struct{ worst, nvlinks int }

func (q quality) compare(o quality) int {
	return cmp.Or(cmp.Compare(q.worst, o.worst), cmp.Compare(q.nvlinks, o.nvlinks))
}

// with is what two groups are worth together.
func (q quality) with(o quality) quality {
	return quality{min(q.worst, o.worst), q.nvlinks + o.nvlinks}
}

// mostLinked is how many devices are ordered by their links; more stay in their order.
const mostLinked = 16

// byLinks orders devices so that each k in a row are well connected: the worst link of all groups is as good as it can be, then there
// are as many NVLinks in them as there can be. Among equals the order stays.
func byLinks(devices []gpu.Device, k int, links []gpu.Link) []gpu.Device {
	if len(devices) > mostLinked || len(links) == 0 {
		return devices
	}
	at := map[string]int{}
	for i, d := range devices {
		at[d.UUID] = i
	}
	var pairs [mostLinked][mostLinked]quality
	for _, l := range links {
		from, known := at[l.From]
		if to, both := at[l.To]; known && both {
			pairs[min(from, to)][max(from, to)] = quality{closeness[l.Kind], l.NVLinks}
		}
	}
	worth := func(group uint) quality {
		q := quality{worst: len(closeness)}
		for rest := group; rest != 0; rest &= rest - 1 {
			i := bits.TrailingZeros(rest)
			for others := rest & (rest - 1); others != 0; others &= others - 1 {
				q = q.with(pairs[i][bits.TrailingZeros(others)])
			}
		}
		return q
	}
	type plan struct {
		quality
		first uint // the group of the first device that is left
	}
	known := map[uint]plan{0: {quality: quality{worst: len(closeness)}}}
	var best func(left uint) quality
	best = func(left uint) quality {
		if p, ok := known[left]; ok {
			return p.quality
		}
		found := plan{quality: quality{worst: -1}}
		lowest := left & -left
		subsets(left&^lowest, k-1, func(others uint) {
			group := lowest | others
			if q := worth(group).with(best(left &^ group)); q.compare(found.quality) > 0 {
				found = plan{q, group}
			}
		})
		known[left] = found
		return found.quality
	}
	left := uint(1)<<len(devices) - 1
	best(left)
	var ordered []gpu.Device
	for left != 0 {
		group := known[left].first
		left &^= group
		for ; group != 0; group &= group - 1 {
			ordered = append(ordered, devices[bits.TrailingZeros(group)])
		}
	}
	return ordered
}

// subsets calls f with each choice of n bits of a set, in the order of the devices.
func subsets(of uint, n int, f func(uint)) {
	if n == 0 {
		f(0)
		return
	}
	for ; of != 0; of &= of - 1 {
		bit := of & -of
		subsets(of&^bit&^(bit-1), n-1, func(rest uint) { f(bit | rest) })
	}
}
