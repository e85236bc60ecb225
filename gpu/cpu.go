package gpu

import (
	"fmt"
	"runtime"
)

// cpuDevice describes this host as a device.
func cpuDevice() Device {
	d := Device{Index: -1, Kind: KindCPU, UUID: CPU, Name: thisHost.cpuName()}
	if d.Name == "" {
		d.Name = runtime.GOARCH + " processor"
	}
	if m, err := thisHost.memory(); err == nil {
		d.Memory = m.Total
	}
	return d
}

// cpuStatus is the host's memory, seen through the device's own total when that is smaller.
func cpuStatus(d Device) (Status, error) {
	m, err := thisHost.memory()
	if err != nil {
		return Status{}, fmt.Errorf("gpu: memory of the host: %w", err)
	}
	if d.Memory > 0 && d.Memory < m.Total {
		m = Memory{Total: d.Memory, Free: min(m.Free, d.Memory)}
		m.Used = m.Total - m.Free
	}
	return Status{Memory: m, Utilization: -1, Temperature: -1, Power: -1}, nil
}
