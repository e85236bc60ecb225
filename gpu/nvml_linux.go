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
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// openDriver loads and initialises NVML, or returns an absentError.
func openDriver(ctx context.Context, path string) (driver, error) {
	paths := libraryPaths
	if path != "" {
		paths = []string{path}
	}
	found, err := load(paths)
	if err != nil {
		return nil, err
	}
	return openNVML(ctx, nvml.New(nvml.WithLibraryPath(found)))
}

// nvmlDriver answers through NVML, which may be called from many threads.
type nvmlDriver struct {
	lib       nvml.Interface
	eventWait time.Duration // longest wait for one event
	pollEvery time.Duration // time between two polls of every GPU
	patience  time.Duration // longest wait for an answer
	listLimit time.Duration // longest wait for the driver's start, and for its list of GPUs
	lostAfter time.Duration // a GPU counts as lost when the driver has owed an answer for so long

	gpus      []nvmlDevice // written by devices, before anyone else has the driver
	instances []nvmlDevice
	listing   *callGate // of layout

	mu     sync.RWMutex // guards closed
	closed bool
	life   context.Context // ends the watches
	end    context.CancelFunc
	calls  sync.WaitGroup // everything that uses the library, watches too
}

type nvmlDevice struct {
	handle nvml.Device
	info   Device
	gi, ci uint32 // of a MIG instance
	*callGate
}

// openNVML initialises the library; tests give a mock.
func openNVML(ctx context.Context, lib nvml.Interface) (*nvmlDriver, error) {
	life, end := context.WithCancel(context.Background())
	d := &nvmlDriver{
		lib: lib, life: life, end: end, listing: newCallGate(),
		eventWait: 500 * time.Millisecond, pollEvery: 5 * time.Second,
		// A first call may wait seconds for a GPU that nobody uses to wake up.
		patience: 2 * time.Second, listLimit: 30 * time.Second, lostAfter: 15 * time.Second,
	}
	ret, err := await(ctx, d, d.listLimit, time.After(d.listLimit), func() (nvml.Return, error) { return lib.Init(), nil })
	switch {
	case errors.Is(err, ErrSilent):
		return nil, &absentError{fmt.Sprintf("the NVIDIA driver: %v", err), hintSilent}
	case err != nil:
		return nil, err
	case ret != nvml.SUCCESS:
		return nil, initError(ret)
	}
	return d, nil
}

const hintSilent = "see what nvidia-smi and dmesg say; the host may have to restart"

// has reports whether the library has one of the functions.
func (d *nvmlDriver) has(names ...string) bool { return oneOf(names, d.lib.Extensions().LookupSymbol) }

func (d *nvmlDriver) hasAll(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !d.has(name) })
}

// read makes a call that the library has under one of the names.
func read[T any](d *nvmlDriver, call func() (T, nvml.Return), names ...string) (value T, ok bool) {
	if !d.has(names...) {
		return value, false
	}
	value, ret := call()
	return value, ret == nvml.SUCCESS
}

// initError says what to do about a driver that is there but not ready.
func initError(ret nvml.Return) error {
	hint := "see what nvidia-smi says"
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		hint = "load its kernel module (modprobe nvidia), give the container GPU access, or use devices: cpu"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		hint = "library and kernel module differ, as after an update: restart the host"
	case nvml.ERROR_NO_PERMISSION:
		hint = "let this user open /dev/nvidiactl and /dev/nvidia*"
	}
	return &absentError{fmt.Sprintf("the NVIDIA driver is not ready: %v", ret), hint}
}

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

// layout lists the devices as they are now: MIG instances come and go.
func (d *nvmlDriver) layout() ([]Device, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer d.release()
	// A driver of its own, so that nobody else sees the list change.
	now := &nvmlDriver{lib: d.lib, listLimit: d.patience}
	return ask(d, d.listing, d.patience, func() ([]Device, error) {
		found, problems, err := now.devices(d.life)
		for _, problem := range problems {
			if errors.Is(problem, ErrSilent) {
				err = cmp.Or(err, problem)
			}
		}
		return found, err
	})
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
		part.gi, part.ci = noInstance, noInstance
		if id, ok := read(d, handle.GetGpuInstanceId, "nvmlDeviceGetGpuInstanceId"); ok {
			part.gi = uint32(id)
		}
		if id, ok := read(d, handle.GetComputeInstanceId, "nvmlDeviceGetComputeInstanceId"); ok {
			part.ci = uint32(id)
		}
		out = append(out, part)
	}
	return out
}

// noInstance is NVML's number for "no MIG instance".
const noInstance = 0xFFFFFFFF

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

// acquire keeps the library open until release.
func (d *nvmlDriver) acquire() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return ErrClosed
	}
	d.calls.Add(1)
	return nil
}

func (d *nvmlDriver) release() { d.calls.Done() }

func (d *nvmlDriver) device(uuid string) (nvmlDevice, error) {
	for _, list := range [][]nvmlDevice{d.gpus, d.instances} {
		if i := slices.IndexFunc(list, func(dev nvmlDevice) bool { return dev.info.UUID == uuid }); i >= 0 {
			return list[i], nil
		}
	}
	return nvmlDevice{}, fmt.Errorf("gpu: %w %q", ErrUnknown, uuid)
}

// inquire asks about one device.
func inquire[T any](d *nvmlDriver, uuid string, call func(nvml.Device) (T, error)) (T, error) {
	var none T
	if err := d.acquire(); err != nil {
		return none, err
	}
	defer d.release()
	dev, err := d.device(uuid)
	if err != nil {
		return none, err
	}
	return ask(d, dev.callGate, d.patience, func() (T, error) { return call(dev.handle) })
}

// close leaves the library open where a call of it does not come back.
func (d *nvmlDriver) close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.end()
	d.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		d.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(d.patience):
		return nil
	}
	if ret := d.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("gpu: shut NVML down: %w", d.failed(ret))
	}
	return nil
}

var _ driver = (*nvmlDriver)(nil)
