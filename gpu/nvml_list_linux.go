//go:build cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// listed is one GPU with its instances, or why it is left out.
type listed struct {
	gpu       nvmlDevice
	instances []nvmlDevice
	err       error
}

// devices lists the GPUs and their MIG instances. One that cannot be opened, or does not
// answer, is a problem to report, not the end of the list.
func (d *nvmlDriver) devices(ctx context.Context) (out []Device, problems []error, err error) {
	list, err := await(ctx, d, d.listLimit, time.After(d.listLimit), d.begin)
	if err != nil {
		return nil, nil, fmt.Errorf("count GPUs: %w", err)
	}
	var all sync.WaitGroup // each is asked on its own, since a driver that hangs may do so for one alone
	for i, l := range list {
		all.Go(func() {
			answer, err := await(ctx, d, d.listLimit, time.After(d.listLimit), func() (listed, error) { return d.list(l.gpu.info), nil })
			if err != nil {
				answer.err = fmt.Errorf("%w; %s", err, hintSilent)
			}
			list[i] = answer
		})
	}
	all.Wait()
	for i, l := range list {
		if l.err != nil {
			problems = append(problems, fmt.Errorf("GPU %d left out: %w", i, l.err))
			continue
		}
		d.gpus = append(d.gpus, l.gpu)
		out = append(out, l.gpu.info)
		for _, p := range l.instances {
			d.instances = append(d.instances, p)
			out = append(out, p.info)
		}
	}
	return out, problems, ctx.Err()
}

// begin counts the GPUs.
func (d *nvmlDriver) begin() ([]listed, error) {
	n, ret := d.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, d.failed(ret)
	}
	base := Device{Kind: KindGPU}
	base.Driver, _ = read(d, d.lib.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	if v, ok := read(d, d.lib.SystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion"); ok {
		base.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	list := make([]listed, n)
	for i := range list {
		list[i].gpu.info = base
		list[i].gpu.info.Index = i
	}
	return list, nil
}

// list describes one GPU and its instances.
func (d *nvmlDriver) list(info Device) (l listed) {
	handle, ret := d.lib.DeviceGetHandleByIndex(info.Index)
	if l.err = d.failed(ret); l.err == nil {
		l.gpu, l.err = d.describe(handle, info)
	}
	if l.err == nil {
		l.instances = d.migInstances(&l.gpu)
	}
	return l
}

func (d *nvmlDriver) describe(handle nvml.Device, info Device) (nvmlDevice, error) {
	var ret nvml.Return
	if info.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return nvmlDevice{}, fmt.Errorf("UUID: %w", d.failed(ret))
	}
	if info.Name, ret = handle.GetName(); ret != nvml.SUCCESS {
		info.Name = string(info.Kind)
	}
	m, err := d.memory(handle)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nvmlDevice{}, err
	}
	info.Memory, info.Reserved = m.Total, m.Reserved
	if info.Kind == KindMIG {
		return nvmlDevice{handle: handle, info: info, callGate: newCallGate()}, nil
	}
	if p, ok := read(d, handle.GetPciInfo, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"); ok {
		info.PCI = busID(p)
	}
	if d.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			info.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
		}
	}
	return nvmlDevice{handle: handle, info: info, callGate: newCallGate()}, nil
}

// migInstances lists the instances of a GPU and marks it when it is split. Instance
// numbers have holes where one was destroyed.
func (d *nvmlDriver) migInstances(g *nvmlDevice) []nvmlDevice {
	if !d.hasAll("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil
	}
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
		part, err := d.describe(handle, info)
		if err != nil {
			continue
		}
		_, part.info.Profile, _ = strings.Cut(part.info.Name, " MIG ")
		out = append(out, part)
	}
	return out
}

func busID(p nvml.PciInfo) string {
	var id []byte
	for _, char := range p.BusId {
		if char == 0 {
			break
		}
		id = append(id, byte(char))
	}
	return string(id)
}
