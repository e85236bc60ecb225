//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// failed gives a return code the meaning that callers test for; nil for success.
func (d *nvmlDriver) failed(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_RESET_REQUIRED:
		return fmt.Errorf("%w: %v (place nothing on it; see nvidia-smi and the kernel log for its Xid)", ErrLost, ret)
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Errorf("%w by this GPU or driver: %v", errors.ErrUnsupported, ret)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%v (run as root, or grant access to /dev/nvidia*)", ret)
	default:
		return ret
	}
}

// known is a number of the driver, with its mark for "unknown" read as 0.
func known(n uint64) uint64 {
	if n == math.MaxUint64 {
		return 0
	}
	return n
}

// memory prefers the newer call, whose free memory leaves out what the driver reserves.
func (d *nvmlDriver) memory(h nvml.Device) (Memory, error) {
	var total, free, reserved uint64
	ret := nvml.ERROR_NOT_SUPPORTED
	if d.has("nvmlDeviceGetMemoryInfo_v2") {
		var m nvml.Memory_v2
		m, ret = h.GetMemoryInfo_v2()
		total, free, reserved = m.Total, m.Free, m.Reserved
	}
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		var m nvml.Memory
		m, ret = h.GetMemoryInfo()
		total, free, reserved = m.Total, m.Free, 0
	}
	if ret != nvml.SUCCESS {
		return Memory{}, fmt.Errorf("memory: %w", d.failed(ret))
	}
	total = known(total)
	free = min(known(free), total)
	return Memory{Total: total, Free: free, Used: total - free, Reserved: min(known(reserved), total-free)}, nil
}

func (d *nvmlDriver) status(uuid string) (Status, error) {
	s, err := inquire(d, uuid, d.statusOf)
	if err != nil {
		return unknown(), fmt.Errorf("gpu: %s: %w", uuid, err)
	}
	return s, nil
}

func (d *nvmlDriver) statusOf(h nvml.Device) (Status, error) {
	var err error
	s := unknown()
	if s.Memory, err = d.memory(h); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return Status{}, err
	}
	if u, ok := read(d, h.GetUtilizationRates, "nvmlDeviceGetUtilizationRates"); ok {
		s.Utilization = int(u.Gpu)
	}
	temperature := func() (uint32, nvml.Return) { return h.GetTemperature(nvml.TEMPERATURE_GPU) }
	if t, ok := read(d, temperature, "nvmlDeviceGetTemperature"); ok {
		s.Temperature = int(t)
	}
	if mw, ok := read(d, h.GetPowerUsage, "nvmlDeviceGetPowerUsage"); ok {
		s.Power = float64(mw) / 1000
	}
	if m, ok := read(d, h.GetComputeMode, "nvmlDeviceGetComputeMode"); ok {
		s.ComputeMode = computeModes[m]
	}
	s.Processes, err = d.holders(h)
	if errors.Is(err, ErrLost) {
		return Status{}, err
	}
	for i, p := range s.Processes {
		name := func() (string, nvml.Return) { return d.lib.SystemGetProcessName(p.PID) }
		s.Processes[i].Name, _ = read(d, name, "nvmlSystemGetProcessName")
	}
	return s, nil
}

var computeModes = map[nvml.ComputeMode]string{
	nvml.COMPUTEMODE_DEFAULT:           "default",
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  "exclusive_thread",
	nvml.COMPUTEMODE_PROHIBITED:        "prohibited",
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

func (d *nvmlDriver) processes(uuid string) ([]Process, error) {
	out, err := inquire(d, uuid, d.holders)
	if err != nil {
		return nil, fmt.Errorf("gpu: processes of %s: %w", uuid, err)
	}
	return out, nil
}

// holders merges the driver's three lists. A client of MPS may stand in two with the same
// memory, so the larger counts; in one list a process has a row per instance.
func (d *nvmlDriver) holders(h nvml.Device) ([]Process, error) {
	lists := []struct {
		kind  string
		names []string
		get   func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"mps", versions("nvmlDeviceGetMPSComputeRunningProcesses"), h.GetMPSComputeRunningProcesses},
		{"compute", versions("nvmlDeviceGetComputeRunningProcesses"), h.GetComputeRunningProcesses},
		{"graphics", versions("nvmlDeviceGetGraphicsRunningProcesses"), h.GetGraphicsRunningProcesses},
	}
	merged := map[int]Process{}
	var listed bool
	err := fmt.Errorf("process lists: %w by this driver", errors.ErrUnsupported)
	for _, l := range lists {
		if !d.has(l.names...) {
			continue
		}
		rows, ret := l.get()
		if ret != nvml.SUCCESS {
			// Without the compute list there is no answer; the others are extras.
			if l.kind == "compute" {
				err = d.failed(ret)
			}
			continue
		}
		listed = listed || l.kind == "compute"
		sums := map[int]uint64{}
		for _, r := range rows {
			sums[int(r.Pid)] += known(r.UsedGpuMemory)
		}
		for pid, bytes := range sums {
			p, seen := merged[pid]
			if !seen {
				p = Process{PID: pid, Type: l.kind}
			}
			p.Memory = max(p.Memory, bytes)
			merged[pid] = p
		}
	}
	if !listed {
		return nil, err
	}
	out := make([]Process, 0, len(merged))
	for _, pid := range slices.Sorted(maps.Keys(merged)) {
		out = append(out, merged[pid])
	}
	return out, nil
}

// versions is the names under which a process list may be exported.
func versions(name string) []string { return []string{name + "_v3", name + "_v2", name} }
