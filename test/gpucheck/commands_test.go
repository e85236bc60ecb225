package gpucheck

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func TestGPU_MapOfEachFramework(t *testing.T) {
	for _, framework := range []string{"torch", "jax", "cupy"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			items := make([]object, 40)
			for i := range items {
				items[i] = object{"framework": framework, "number": i}
			}
			for i, r := range m.mapped(0, "add_up", items, "--slots", "2", "--memory", "4GiB") {
				got := value[struct {
					Platform, Device string
					Sum              float64
				}](t, r)
				require.Equal(t, "cuda", got.Platform)
				require.Equal(t, m.device.UUID, got.Device)
				require.InDelta(t, float64(4096*i), got.Sum, 0.5)
			}
		})
	}
}

func TestGPU_GPUsCommand(t *testing.T) {
	m := onGPU(t)
	out, _ := m.command(0, "gpus", "--json")
	var report struct {
		Devices []struct {
			gpu.Device
			Status *gpu.Status
			Error  string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	devices := m.inventory.Devices()
	require.Len(t, report.Devices, len(devices))
	for i, d := range report.Devices {
		if d.Kind == gpu.KindCPU { // a virtual machine's memory may grow between two looks
			d.Memory, devices[i].Memory = 0, 0
		}
		require.Equal(t, devices[i], d.Device)
		require.Empty(t, d.Error)
		require.NotNil(t, d.Status)
		require.LessOrEqual(t, d.Status.Memory.Free, d.Status.Memory.Total)
	}
	table, _ := m.command(0, "gpus")
	require.Contains(t, table, m.device.Name)
}

func TestGPU_DoctorCommand(t *testing.T) {
	m := onGPU(t)
	out, _ := m.command(0, "doctor", "--json", "--python", python())
	var findings []struct{ Check, Status, Detail, Fix string }
	require.NoError(t, json.Unmarshal([]byte(out), &findings))
	for _, f := range findings {
		if strings.Contains(f.Detail, m.device.Name) {
			require.Equal(t, map[bool]string{true: "ok", false: "note"}[m.lists()], f.Status, "%+v", f)
			return
		}
	}
	require.Fail(t, "doctor does not name the GPU", out)
}
