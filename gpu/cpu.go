package gpu

import (
	"cmp"
	"fmt"
	"runtime"
)

// cpuDevice describes this host as a device.
func cpuDevice() Device {
	m, _ := thisHost.memory()
	return Device{Index: -1, Kind: KindCPU, UUID: CPU, Name: cmp.Or(thisHost.cpuName(), runtime.GOARCH+" processor"), Memory: m.Total}
}

// cpuStatus is the host's memory, seen through the device's own total when that is smaller.
func cpuStatus(d Device) (Status, error) {
	m, err := thisHost.memory()
	if err != nil {
		return unknown(), fmt.Errorf("gpu: memory of the host: %w", err)
	}
	if d.Memory > 0 && d.Memory < m.Total {
		m = Memory{Total: d.Memory, Free: min(m.Free, d.Memory)}
		m.Used = m.Total - m.Free
	}
	s := unknown()
	s.Memory = m
	return s, nil
}
