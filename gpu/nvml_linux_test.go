//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
)

const gib = uint64(1) << 30

func pci(bus string) (p nvml.PciInfo) {
	for i, char := range []byte(bus) {
		p.BusId[i] = int8(char)
	}
	return p
}

func dgx() *dgxa100.Server {
	s := dgxa100.New()
	for i, d := range s.Devices {
		dev := d.(*dgxa100.Device)
		dev.GetMemoryInfo_v2Func = memoryOf(40*gib, 39*gib)
		dev.GetUtilizationRatesFunc = func() (u nvml.Utilization, ret nvml.Return) { return u, nvml.ERROR_NOT_SUPPORTED }
		dev.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		dev.GetComputeModeFunc = func() (m nvml.ComputeMode, ret nvml.Return) { return m, nvml.ERROR_NOT_SUPPORTED }
		none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		dev.GetComputeRunningProcessesFunc, dev.GetMPSComputeRunningProcessesFunc, dev.GetGraphicsRunningProcessesFunc = none, none, none
		dev.GetTopologyCommonAncestorFunc = func(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			if other.(*dgxa100.Device).Index/4 == i/4 {
				return nvml.TOPOLOGY_MULTIPLE, nvml.SUCCESS
			}
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		}
		dev.GetP2PStatusFunc = func(other nvml.Device, what nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			if other.(*dgxa100.Device).Index == i^1 && what == nvml.P2P_CAPS_INDEX_NVLINK {
				return nvml.P2P_STATUS_OK, nvml.SUCCESS
			}
			return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
		}
		dev.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			return pci(fmt.Sprint("PCI", i)), nvml.SUCCESS
		}
	}
	s.SystemGetProcessNameFunc = func(int) (string, nvml.Return) { return "", nvml.ERROR_NOT_FOUND }
	return s
}

func memoryOf(total, free uint64) func() (nvml.Memory_v2, nvml.Return) {
	return func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: total, Free: free, Used: total - free}, nvml.SUCCESS
	}
}

func device(s *dgxa100.Server, i int) *dgxa100.Device { return s.Devices[i].(*dgxa100.Device) }

func open(t *testing.T, s *dgxa100.Server) *Inventory {
	t.Helper()
	d, err := openNVML(t.Context(), s)
	require.NoError(t, err)
	inv, err := openWith(t.Context(), d, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	return inv
}

func TestOpen_LeavesOutAGPUThatIsLost(t *testing.T) {
	s := dgx()
	get := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 2 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return get(i)
	}
	inv := open(t, s)
	require.Len(t, inv.Devices(), 8)
	require.Contains(t, inv.Reason(), "GPU 2 left out: device lost")
	require.Equal(t, "X NVL - PXB SYS SYS SYS SYS", inv.Devices()[0].Links)
	require.Equal(t, "PXB PXB - X SYS SYS SYS SYS", inv.Devices()[2].Links)
	_, err := inv.Select(Selection{"2"})
	require.ErrorIs(t, err, ErrUnknown)
}

func TestOpen_DriverNotReady(t *testing.T) {
	for ret, hint := range map[nvml.Return]string{
		nvml.ERROR_DRIVER_NOT_LOADED:       "modprobe nvidia",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "restart the host",
		nvml.ERROR_NO_PERMISSION:           "/dev/nvidiactl",
		nvml.ERROR_UNKNOWN:                 "nvidia-smi",
	} {
		s := dgx()
		s.InitFunc = func() nvml.Return { return ret }
		_, err := openNVML(t.Context(), s)
		var absent *absentError
		require.ErrorAs(t, err, &absent)
		require.ErrorContains(t, err, hint)
	}
}

func TestOpen_CountFails(t *testing.T) {
	s := dgx()
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	closed := false
	s.ShutdownFunc = func() nvml.Return { closed = true; return nvml.SUCCESS }
	d, err := openNVML(t.Context(), s)
	require.NoError(t, err)
	_, err = openWith(t.Context(), d, Options{})
	require.ErrorContains(t, err, "count GPUs")
	require.True(t, closed, "a failed Open must let go of the library")
}

func TestOpen_VisibleDevices(t *testing.T) {
	s := dgx()
	for _, c := range []struct {
		spec string
		want []int
	}{
		{"", nil}, {"-1", nil}, {"1,0", []int{0, 1}}, {"5,nonsense,6", []int{5}},
		{device(s, 4).UUID[:12], []int{4}}, {" 2 , 3 ", []int{2, 3}},
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.spec)
		inv := open(t, s)
		var got []int
		for _, d := range inv.Devices() {
			if d.Kind == KindGPU {
				got = append(got, d.Index)
			}
		}
		require.Equal(t, c.want, got, "CUDA_VISIBLE_DEVICES=%q", c.spec)
		require.Contains(t, inv.Reason(), "CUDA_VISIBLE_DEVICES")
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	d, err := openNVML(t.Context(), s)
	require.NoError(t, err)
	inv, err := openWith(t.Context(), d, Options{IgnoreVisible: true})
	require.NoError(t, err)
	require.Len(t, inv.Devices(), 9)
}

// split makes GPU 1 a MIG GPU with instances at 0 and 3, and nothing between.
func split(s *dgxa100.Server) {
	g := device(s, 1)
	g.MigMode = nvml.DEVICE_MIG_ENABLE
	g.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	part := func(uuid string) *mock.Device {
		return &mock.Device{
			GetUUIDFunc:          func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
			GetNameFunc:          func() (string, nvml.Return) { return "A100 MIG 1g.5gb", nvml.SUCCESS },
			GetMemoryInfo_v2Func: memoryOf(5*gib, 5*gib),
		}
	}
	parts := map[int]*mock.Device{0: part("MIG-aaa"), 3: part("MIG-bbb")}
	g.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if p, ok := parts[i]; ok {
			return p, nvml.SUCCESS
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
}

func TestOpen_MIGInstancesWithHoles(t *testing.T) {
	s := dgx()
	split(s)
	inv := open(t, s)
	require.Len(t, inv.Devices(), 11)
	d := inv.Devices()[3]
	require.Equal(t, "MIG-bbb", d.UUID)
	require.Equal(t, 3, d.Instance)
	require.Equal(t, device(s, 1).UUID, d.Parent)
	require.Equal(t, 5*gib, d.Memory)
	require.Equal(t, "8.0", d.ComputeCapability)

	got, err := inv.Select(Selection{"1"})
	require.NoError(t, err)
	require.Equal(t, []string{"MIG-aaa", "MIG-bbb"}, uuids(got))
	one, err := inv.Select(Selection{"1:3"})
	require.NoError(t, err)
	require.Equal(t, []string{"MIG-bbb"}, uuids(one))
	all, err := inv.Select(Selection{"all"})
	require.NoError(t, err)
	require.Len(t, all, 9, "7 GPUs and 2 instances, without the GPU they are part of")

	t.Setenv("CUDA_VISIBLE_DEVICES", "MIG-bbb")
	inv = open(t, s)
	require.Equal(t, []string{device(s, 1).UUID, "MIG-bbb", CPU}, uuids(inv.Devices()))
}

func TestSelect_MIGWithoutInstances(t *testing.T) {
	s := dgx()
	split(s)
	device(s, 1).GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	_, err := open(t, s).Select(Selection{"1"})
	require.ErrorContains(t, err, "nvidia-smi mig -cgi")
}

func TestStatus_Memory(t *testing.T) {
	s := dgx()
	device(s, 0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 * gib, Reserved: gib, Free: 30 * gib, Used: 9 * gib}, nvml.SUCCESS
	}
	inv := open(t, s)
	st, err := inv.Status(device(s, 0).UUID)
	require.NoError(t, err)
	require.Equal(t, Memory{Total: 40 * gib, Free: 30 * gib, Used: 10 * gib, Reserved: gib}, st.Memory)
	require.Equal(t, 9*gib, st.Memory.Held())
	require.Equal(t, 39*gib, inv.Devices()[0].Available())
	require.Equal(t, -1, st.Utilization)
	device(s, 0).GetMemoryInfo_v2Func = memoryOf(math.MaxUint64, math.MaxUint64)
	st, err = inv.Status(device(s, 0).UUID)
	require.NoError(t, err)
	require.Zero(t, st.Memory, "all ones is the driver's word for unknown")
}

func TestStatus_LostDevice(t *testing.T) {
	s := dgx()
	inv := open(t, s)
	for _, ret := range []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND} {
		device(s, 5).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, ret }
		_, err := inv.Status(device(s, 5).UUID)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorContains(t, err, device(s, 5).UUID)
	}
	_, err := inv.Status("GPU-nowhere")
	require.ErrorIs(t, err, ErrUnknown)
}

func TestProcessMemory_MergesLists(t *testing.T) {
	s := dgx()
	d := device(s, 0)
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{
			{Pid: 10, UsedGpuMemory: 3 * gib},
			{Pid: 11, UsedGpuMemory: math.MaxUint64},
			{Pid: 12, UsedGpuMemory: gib, GpuInstanceId: 1}, {Pid: 12, UsedGpuMemory: 2 * gib, GpuInstanceId: 2},
			{Pid: 20, UsedGpuMemory: math.MaxUint64},
		}, nvml.SUCCESS
	}
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 20, UsedGpuMemory: 4 * gib}, {Pid: 10, UsedGpuMemory: gib}}, nvml.SUCCESS
	}
	s.SystemGetProcessNameFunc = func(pid int) (string, nvml.Return) {
		if pid == 10 {
			return "/usr/bin/python3", nvml.SUCCESS
		}
		return "", nvml.ERROR_NOT_FOUND
	}
	inv := open(t, s)
	got, err := inv.ProcessMemory(d.UUID)
	require.NoError(t, err)
	require.Equal(t, map[int]uint64{10: 3 * gib, 11: 0, 12: 3 * gib, 20: 4 * gib}, got)
	st, err := inv.Status(d.UUID)
	require.NoError(t, err)
	require.Equal(t, []Process{
		{PID: 10, Name: "/usr/bin/python3", Type: "mps", Memory: 3 * gib}, {PID: 11, Type: "compute"},
		{PID: 12, Type: "compute", Memory: 3 * gib}, {PID: 20, Type: "mps", Memory: 4 * gib},
	}, st.Processes)
}

func TestProcessMemory_NotTold(t *testing.T) {
	s := dgx()
	d := device(s, 0)
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	inv := open(t, s)
	_, err := inv.ProcessMemory(d.UUID)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	got, err := inv.ProcessMemory(d.UUID)
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got)
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
	_, err = inv.ProcessMemory(d.UUID)
	require.ErrorIs(t, err, ErrLost)
}

// What points to a GPU that cannot be used is told apart from a host without one.
func TestOpen_Unusable(t *testing.T) {
	mig := func() *dgxa100.Server {
		s := dgx()
		for i := range s.Devices {
			device(s, i).GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
			device(s, i).GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		}
		return s
	}
	none := func() *dgxa100.Server {
		s := dgx()
		s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
		return s
	}
	for name, c := range map[string]struct {
		server  *dgxa100.Server
		files   []string
		visible string
		want    []string
	}{
		"well":                  {server: dgx(), files: []string{"dev/nvidia0"}},
		"MIG without instances": {server: mig(), want: []string{"the driver points to a GPU", "no instances", "nvidia-smi mig -cgi"}},
		"hidden on purpose":     {server: dgx(), files: []string{"dev/nvidia0"}, visible: "-1"},
		"names nothing":         {server: dgx(), visible: "GPU-none", want: []string{`CUDA_VISIBLE_DEVICES="GPU-none"`, "8 of 8"}},
		"no GPU, no sign":       {server: none()},
		"no GPU, a sign":        {server: none(), files: []string{"dev/dxg"}, want: []string{"/dev/dxg points to a GPU", "lists no GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, c.files...)
			if c.visible != "" {
				t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
			}
			inv := open(t, c.server)
			if c.want == nil {
				require.Empty(t, inv.Unusable())
			}
			for _, part := range c.want {
				require.Contains(t, inv.Unusable(), part)
			}
		})
	}
}
