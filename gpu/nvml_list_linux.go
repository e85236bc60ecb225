//go:build cgo

package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// devices lists the GPUs, each with its MIG instances after it. One that cannot be
// opened, or does not answer, is a problem to report, not the end of the list.
func (d *nvmlDriver) devices(ctx context.Context) (out []Device, problems []error, err error) {
	asking, cancel := patient(ctx, d.listLimit)
	defer cancel()
	gpus, err := await(asking, d, d.count)
	if err != nil {
		return nil, nil, fmt.Errorf("count GPUs: %w", err)
	}
	lists, errs := make([][]nvmlDevice, len(gpus)), make([]error, len(gpus))
	var all sync.WaitGroup // each is asked on its own, since a driver that hangs may do so for one alone
	for i, info := range gpus {
		all.Go(func() {
			lists[i], errs[i] = await(asking, d, func() ([]nvmlDevice, error) { return d.list(info) })
		})
	}
	all.Wait()
	if len(lists) > 1 {
		linking, cancel := patient(ctx, d.listLimit) // one that is silent has used up the other
		defer cancel()
		rows, _ := await(linking, d, func() ([]string, error) { return linksOf(lists), nil })
		for i, row := range rows {
			if lists[i] != nil {
				lists[i][0].info.Links = row
			}
		}
	}
	for i, list := range lists {
		if errs[i] != nil {
			problem := fmt.Errorf("GPU %d left out: %w", i, errs[i])
			if errors.Is(errs[i], ErrSilent) {
				problem = fmt.Errorf("%w; %s", problem, hintSilent)
			}
			problems = append(problems, problem)
		}
		for _, device := range list {
			d.listed[device.info.UUID] = device
			out = append(out, device.info)
		}
	}
	return out, problems, ctx.Err()
}

// count returns what is known of all GPUs, once for each.
func (d *nvmlDriver) count() ([]Device, error) {
	n, ret := d.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, failed(ret)
	}
	gpu := Device{Kind: KindGPU}
	gpu.Driver, _ = d.lib.SystemGetDriverVersion()
	if v, ret := d.lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		gpu.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	gpus := slices.Repeat([]Device{gpu}, n)
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus, nil
}

func (d *nvmlDriver) list(info Device) ([]nvmlDevice, error) {
	handle, ret := d.lib.DeviceGetHandleByIndex(info.Index)
	if ret != nvml.SUCCESS {
		return nil, failed(ret)
	}
	gpu, err := describe(handle, info)
	if err != nil {
		return nil, err
	}
	instances := migInstances(&gpu) // which marks the GPU
	return append([]nvmlDevice{gpu}, instances...), nil
}

var levels = map[nvml.GpuTopologyLevel]string{
	nvml.TOPOLOGY_INTERNAL: "PSB", nvml.TOPOLOGY_SINGLE: "PIX", nvml.TOPOLOGY_MULTIPLE: "PXB", nvml.TOPOLOGY_HOSTBRIDGE: "PHB",
	nvml.TOPOLOGY_NODE: "NODE", nvml.TOPOLOGY_SYSTEM: "SYS",
}

// linksOf are those of each GPU to all, of the lists of those that answer.
func linksOf(lists [][]nvmlDevice) []string {
	rows := make([]string, len(lists))
	for at, from := range lists {
		words := slices.Repeat([]string{"-"}, len(lists))
		for i, to := range lists {
			switch {
			case i == at:
				words[i] = "X"
			case from != nil && to != nil:
				words[i] = link(from[0].handle, to[0].handle)
			}
		}
		rows[at] = strings.Join(words, " ")
	}
	return rows
}

func link(from, to nvml.Device) string {
	if status, ret := from.GetP2PStatus(to, nvml.P2P_CAPS_INDEX_NVLINK); ret == nvml.SUCCESS && status == nvml.P2P_STATUS_OK {
		return "NVL"
	}
	if level, ret := from.GetTopologyCommonAncestor(to); ret == nvml.SUCCESS {
		return cmp.Or(levels[level], "-")
	}
	return "-"
}

func describe(handle nvml.Device, info Device) (nvmlDevice, error) {
	var ret nvml.Return
	if info.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return nvmlDevice{}, fmt.Errorf("UUID: %w", failed(ret))
	}
	if info.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		info.Name = string(info.Kind)
	}
	m, err := memory(handle)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nvmlDevice{}, err
	}
	info.Memory, info.Reserved = m.Total, m.Reserved
	device := nvmlDevice{handle: handle, info: info, turn: make(chan struct{}, 1)}
	if info.Kind == KindMIG {
		return device, nil
	}
	if p, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		device.info.PCI = busID(p)
		device.info.Cores = thisHost.cores(device.info.PCI)
	}
	if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		device.info.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	return device, nil
}

// migInstances lists the instances of a GPU and marks it when it is split. Instance
// numbers have holes where one was destroyed.
func migInstances(g *nvmlDevice) []nvmlDevice {
	mode, _, ret := g.handle.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	g.info.MIG = true
	n, ret := g.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var out []nvmlDevice
	for i := range n {
		handle, ret := g.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		info := g.info
		info.Kind, info.Instance, info.Parent, info.MIG = KindMIG, i, g.info.UUID, false
		part, err := describe(handle, info)
		if err != nil {
			continue
		}
		_, part.info.Profile, _ = strings.Cut(part.info.Name, " MIG ")
		out = append(out, part)
	}
	return out
}

func busID(p nvml.PciInfo) string {
	id := make([]byte, len(p.BusId))
	for i, char := range p.BusId {
		id[i] = byte(char)
	}
	return unix.ByteSliceToString(id)
}
