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
func failed(ret nvml.Return) error {
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

func memory(h nvml.Device) (Memory, error) {
	m, ret := h.GetMemoryInfo_v2()
	if ret != nvml.SUCCESS {
		return Memory{}, fmt.Errorf("memory: %w", failed(ret))
	}
	total := known(m.Total)
	free := min(known(m.Free), total)
	return Memory{Total: total, Free: free, Used: total - free, Reserved: min(known(m.Reserved), total-free)}, nil
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
	if s.Memory, err = memory(h); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return Status{}, err
	}
	if u, ret := h.GetUtilizationRates(); ret == nvml.SUCCESS {
		s.Utilization = int(u.Gpu)
	}
	if t, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		s.Temperature = int(t)
	}
	s.Power = powerOf(h)
	if m, ret := h.GetComputeMode(); ret == nvml.SUCCESS {
		s.ComputeMode = computeModes[m]
	}
	s.Processes, err = holders(h)
	if errors.Is(err, ErrLost) {
		return Status{}, err
	}
	for i, p := range s.Processes {
		s.Processes[i].Name, _ = d.lib.SystemGetProcessName(p.PID)
	}
	return s, nil
}

func (d *nvmlDriver) load(uuid string) (Load, error) {
	l, err := inquire(d, uuid, loadOf)
	if err != nil {
		return Load{}, fmt.Errorf("gpu: load of %s: %w", uuid, err)
	}
	return l, nil
}

func powerOf(h nvml.Device) float64 {
	if mw, ret := h.GetPowerUsage(); ret == nvml.SUCCESS {
		return float64(mw) / 1000
	}
	return -1
}

const slowed = nvml.ClocksThrottleReasonHwSlowdown | nvml.ClocksThrottleReasonSwThermalSlowdown |
	nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksThrottleReasonHwPowerBrakeSlowdown

func loadOf(h nvml.Device) (Load, error) {
	u, ret := h.GetUtilizationRates()
	if ret != nvml.SUCCESS {
		return Load{}, failed(ret)
	}
	l := Load{Computing: float64(u.Gpu) / 100, Power: powerOf(h)}
	if mj, ret := h.GetTotalEnergyConsumption(); ret == nvml.SUCCESS { // from Volta on
		l.Energy = float64(mj) / 1000
	}
	// Its successor of the same meaning begins with driver 535.
	if reasons, ret := h.GetCurrentClocksThrottleReasons(); ret == nvml.SUCCESS {
		l.Slowed = reasons&slowed != 0
	}
	return l, nil
}

var computeModes = map[nvml.ComputeMode]string{
	nvml.COMPUTEMODE_DEFAULT:           "default",
	nvml.COMPUTEMODE_EXCLUSIVE_THREAD:  "exclusive_thread",
	nvml.COMPUTEMODE_PROHIBITED:        "prohibited",
	nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

func (d *nvmlDriver) processes(uuid string) ([]Process, error) {
	out, err := inquire(d, uuid, holders)
	if err != nil {
		return nil, fmt.Errorf("gpu: processes of %s: %w", uuid, err)
	}
	return out, nil
}

// holders merges the driver's three lists. A client of MPS may stand in two with the same
// memory, so the larger counts; in one list a process has a row per instance.
func holders(h nvml.Device) ([]Process, error) {
	merged := map[int]Process{}
	for _, list := range []struct {
		kind string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
	}{{"mps", h.GetMPSComputeRunningProcesses}, {"compute", h.GetComputeRunningProcesses}, {"graphics", h.GetGraphicsRunningProcesses}} {
		rows, ret := list.get()
		if ret != nvml.SUCCESS && list.kind == "compute" { // the others are extras
			return nil, failed(ret)
		}
		sums := map[int]uint64{}
		for _, r := range rows {
			sums[int(r.Pid)] += known(r.UsedGpuMemory)
		}
		for pid, bytes := range sums {
			p, seen := merged[pid]
			if !seen {
				p = Process{PID: pid, Type: list.kind}
			}
			p.Memory = max(p.Memory, bytes)
			merged[pid] = p
		}
	}
	out := make([]Process, 0, len(merged))
	for _, pid := range slices.Sorted(maps.Keys(merged)) {
		out = append(out, merged[pid])
	}
	return out, nil
}
