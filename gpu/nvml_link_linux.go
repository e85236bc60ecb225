//go:build cgo

package gpu

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

var linkKinds = map[nvml.GpuTopologyLevel]string{
	nvml.TOPOLOGY_INTERNAL:   "internal",
	nvml.TOPOLOGY_SINGLE:     "pix",
	nvml.TOPOLOGY_MULTIPLE:   "pxb",
	nvml.TOPOLOGY_HOSTBRIDGE: "phb",
	nvml.TOPOLOGY_NODE:       "node",
	nvml.TOPOLOGY_SYSTEM:     "sys",
}

func (d *nvmlDriver) links() ([]Link, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer d.release()
	out := []Link{}
	for i, a := range d.gpus {
		remotes := d.nvlinks(a.handle)
		for _, b := range d.gpus[i+1:] {
			l := Link{From: a.info.UUID, To: b.info.UUID, Kind: "unknown"}
			ancestor := func() (nvml.GpuTopologyLevel, nvml.Return) { return a.handle.GetTopologyCommonAncestor(b.handle) }
			if level, ok := read(d, ancestor, "nvmlDeviceGetTopologyCommonAncestor"); ok && linkKinds[level] != "" {
				l.Kind = linkKinds[level]
			}
			l.P2P = d.peer(a, b, nvml.P2P_CAPS_INDEX_READ) && d.peer(a, b, nvml.P2P_CAPS_INDEX_WRITE)
			// Direct links name the other GPU; links that all end elsewhere meet in a
			// switch, and the driver's word on NVLink access decides.
			l.NVLinks = remotes[b.info.PCI]
			if l.NVLinks == 0 && d.peer(a, b, nvml.P2P_CAPS_INDEX_NVLINK) {
				l.NVLinks = d.toSwitch(remotes)
			}
			if l.NVLinks > 0 {
				l.Kind = "nvlink"
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (d *nvmlDriver) peer(a, b nvmlDevice, what nvml.GpuP2PCapsIndex) bool {
	status := func() (nvml.GpuP2PStatus, nvml.Return) { return a.handle.GetP2PStatus(b.handle, what) }
	s, ok := read(d, status, "nvmlDeviceGetP2PStatus")
	return ok && s == nvml.P2P_STATUS_OK
}

// nvlinks counts the active NVLinks of a GPU by the bus address at their other end.
func (d *nvmlDriver) nvlinks(h nvml.Device) map[string]int {
	out := map[string]int{}
	if !d.has("nvmlDeviceGetNvLinkState") || !d.has("nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") {
		return out
	}
	for link := range nvml.NVLINK_MAX_LINKS {
		on, ret := h.GetNvLinkState(link)
		if ret != nvml.SUCCESS || on != nvml.FEATURE_ENABLED {
			continue
		}
		if remote, ret := h.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			out[busID(remote)]++
		}
	}
	return out
}

// toSwitch counts the links that end in something that is no GPU of the list.
func (d *nvmlDriver) toSwitch(remotes map[string]int) int {
	n := 0
	for bus, links := range remotes {
		if !slices.ContainsFunc(d.gpus, func(g nvmlDevice) bool { return g.info.PCI == bus }) {
			n += links
		}
	}
	return n
}
