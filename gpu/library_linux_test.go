//go:build cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

// The tests of this file load a real shared library, through the same door as the
// driver's.

func openMachine(t *testing.T, s gputest.State) (*gputest.Machine, *Inventory) {
	t.Helper()
	m := gputest.New(t, s)
	inv, err := Open(t.Context(), Options{Library: m.Library})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	return m, inv
}

func TestLibrary_DevicesAndStatus(t *testing.T) {
	m, inv := openMachine(t, gputest.State{CUDA: 13010, GPUs: []gputest.GPU{
		{Name: "NVIDIA H200", Total: 139 * gib, Free: 100 * gib, Utilization: 12, Temperature: 40, Milliwatts: 75500},
		{Instances: []gputest.Instance{
			{Number: 0},
			{Number: 5, Processes: []gputest.Process{{PID: 7, Memory: gib}}},
		}},
	}})
	all := inv.Devices()
	require.Len(t, all, 5)
	all[0].Cores = "" // this host's
	require.Equal(t, Device{
		Index: 0, Kind: KindGPU, UUID: "GPU-00000000-0000-0000-0000-000000000000", Name: "NVIDIA H200",
		PCI: "00000000:01:00.0", Memory: 139 * gib, ComputeCapability: "9.0", Driver: "580.65.06", CUDA: "13.1", Links: "X SYS",
	}, all[0])
	require.True(t, all[1].MIG)
	require.Equal(t, "MIG-00000000-0000-0000-0001-000000000005", all[3].UUID)
	require.Equal(t, 5, all[3].Instance)
	require.Equal(t, all[1].UUID, all[3].Parent)
	require.Equal(t, "1g.5gb", all[3].Profile)
	require.Empty(t, all[1].Profile)

	st, err := inv.Status(all[0].UUID)
	require.NoError(t, err)
	require.Equal(t, Status{
		Memory:      Memory{Total: 139 * gib, Free: 100 * gib, Used: 39 * gib},
		Utilization: 12, Temperature: 40, Power: 75.5, ComputeMode: "default", Processes: []Process{},
	}, st)
	st, err = inv.Status(all[3].UUID)
	require.NoError(t, err)
	require.Equal(t, -1, st.Utilization, "an instance has no load of its own")
	before, err := inv.Load(all[0].UUID)
	require.NoError(t, err)
	require.Equal(t, []any{0.12, 75.5, false}, []any{before.Computing, before.Power, before.Slowed})
	require.Eventually(t, func() bool { // 75.5 W
		load, err := inv.Load(all[0].UUID)
		return err == nil && load.Energy >= before.Energy+1
	}, time.Minute, time.Millisecond)
	m.Update(func(s *gputest.State) { s.GPUs[0].Throttle = 0x4 })
	load, err := inv.Load(all[0].UUID)
	require.NoError(t, err)
	require.False(t, load.Slowed, "at its power limit, as busy GPUs are")
	m.Update(func(s *gputest.State) { s.GPUs[0].Throttle = 0x44 })
	load, err = inv.Load(all[0].UUID)
	require.NoError(t, err)
	require.True(t, load.Slowed)
	for _, uuid := range []string{CPU, all[3].UUID} {
		_, err = inv.Load(uuid)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	require.Equal(t, []Process{{PID: 7, Type: "compute", Memory: gib}}, st.Processes)
}

func TestLibrary_MemoryOfLivingProcesses(t *testing.T) {
	m, inv := openMachine(t, gputest.State{GPUs: []gputest.GPU{{}}})
	uuid := inv.Devices()[0].UUID
	pid, stop := holder(t, mib, nil)
	m.Allocate(pid, uuid, 3*gib)
	st, err := inv.Status(uuid)
	require.NoError(t, err)
	require.Equal(t, Memory{Total: 16 * gib, Free: 13 * gib, Used: 3 * gib}, st.Memory)
	held, err := inv.ProcessMemory(uuid)
	require.NoError(t, err)
	require.Equal(t, map[int]uint64{pid: 3 * gib}, held)
	stop()
	st, err = inv.Status(uuid)
	require.NoError(t, err)
	require.Equal(t, 16*gib, st.Memory.Free, "memory comes back with the end of its process")
}

func TestLibrary_SecondOneIsRefused(t *testing.T) {
	openMachine(t, gputest.State{})
	_, err := Open(t.Context(), Options{Library: "/other/libnvidia-ml.so.1"})
	require.ErrorContains(t, err, "start another process")
}

func init() { playLibrary = listLibrary }

// listLibrary runs in a process of its own, as one process cannot load two drivers. The
// path "default" leaves the choice to Open, and "absent" makes the search find nothing.
func listLibrary(path string) int {
	var o Options
	switch path {
	case "default":
	case "absent":
		libraryPaths = []string{"libgpumux-absent.so.1", "/nowhere/libgpumux-absent.so.1"}
	default:
		o.Library = path
	}
	inv, err := Open(context.Background(), o)
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	uuid := inv.Devices()[0].UUID
	if uuid == CPU {
		fmt.Println("cpu only:", inv.Reason(), inv.Close())
		return 0
	}
	st, err := inv.Status(uuid)
	fmt.Println(len(inv.Devices()), st.Memory.Total, st.Utilization, err)
	held, err := inv.ProcessMemory(uuid)
	fmt.Println(held, err)
	fmt.Println(inv.Close())
	return 0
}

func TestLibrary_FoundOnTheLoadersPath(t *testing.T) {
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{}, {}}})
	out := again(t, append(m.Env(), "GPU_TEST_LIBRARY=default")...)
	require.Contains(t, out, "3 17179869184 0 <nil>\n")
}

func TestLibrary_Absent(t *testing.T) {
	out := again(t, "GPU_TEST_LIBRARY=absent")
	require.Equal(t, "cpu only: no NVIDIA driver: libgpumux-absent.so.1 not found; install the NVIDIA driver, "+
		"start the container with GPU access, or use devices: cpu <nil>\n", out)
}

func TestLibrary_NotNVML(t *testing.T) {
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "x.c"), filepath.Join(dir, "libx.so")
	require.NoError(t, os.WriteFile(src, []byte("int nothing(void) { return 0; }\n"), 0o600))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, src).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, fails(t, "GPU_TEST_LIBRARY="+lib), "is not a usable NVML: it has no function nvmlInit_v2")
	require.Contains(t, fails(t, "GPU_TEST_LIBRARY="+src), "cannot be loaded: ")
	require.Contains(t, fails(t, "GPU_TEST_LIBRARY=/nowhere/libnvidia-ml.so.1"), "/nowhere/libnvidia-ml.so.1 not found")
}

// again runs this test's program as another process.
func again(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func fails(t *testing.T, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	return string(out)
}

// A probe that does not find the driver where NVML was found cannot try the device.
func TestLibrary_TheProbeLooksInTheSameFolders(t *testing.T) {
	data, err := os.ReadFile("../internal/health/probe.py")
	require.NoError(t, err)
	for _, path := range libraryPaths[1:] {
		require.Contains(t, string(data), `"`+filepath.Dir(path)+`/"`)
	}
}
