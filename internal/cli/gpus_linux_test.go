//go:build cgo

package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// machineOfAll has something to tell in every field. Its devices have UUIDs as real ones
// do.
func machineOfAll(t *testing.T) *gpu.Inventory {
	t.Helper()
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	name := "NVIDIA A100-SXM4-80GB"
	uuids := []string{
		"GPU-3f6d2a10-8a1e-4a57-9a9c-0e6b4a7c1d01", "GPU-5b8e7c21-1c2d-4e3f-8a4b-5c6d7e8f9a02", "GPU-5b8e7c21-2c2d-4e3f-8a4b-5c6d7e8f9a03",
		"GPU-9d0e1f32-3c2d-4e3f-8a4b-5c6d7e8f9a04", "GPU-c4d5e6f7-4c2d-4e3f-8a4b-5c6d7e8f9a05",
	}
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{
		{UUID: uuids[0], Name: name, Total: 80 << 30, Free: 60<<30 + 3<<28, Reserved: 580 << 20, Utilization: 100, Temperature: 51,
			Milliwatts: 301500, Processes: []gputest.Process{
				{PID: 4711, Memory: 19 << 30}, {PID: 4712, Memory: gputest.Unknown}, {PID: 77, Memory: 1 << 20, Type: "graphics"},
			}},
		{UUID: uuids[1], Name: name, Total: 80 << 30, Free: 80 << 30, Temperature: 33},
		{UUID: uuids[2], Name: name, Total: 80 << 30, Free: 79 << 30, Mode: 3,
			Processes: []gputest.Process{{PID: 900, Memory: 1 << 30, Type: "mps"}}},
		{UUID: uuids[3], Name: name, Total: 80 << 30, Free: 80 << 30, Instances: []gputest.Instance{
			{Number: 0, UUID: "MIG-0a1b2c3d-8a1e-5a57-9a9c-0e6b4a7c1d01", Name: name + " MIG 3g.40gb", Total: 40 << 30, Free: 40 << 30},
			{Number: 2, UUID: "MIG-1a1b2c3d-8a1e-5a57-9a9c-0e6b4a7c1d02", Name: name + " MIG 1g.10gb", Total: 10 << 30, Free: 9 << 30},
		}},
		{UUID: uuids[4], Name: "NVIDIA RTX PRO 6000 Blackwell Server Edition", Total: 96 << 30},
	}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: m.Library})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inventory.Close()) })
	m.Update(func(s *gputest.State) { s.GPUs[4].Lost = true })
	return inventory
}

// onAnyHost takes out what is this host's.
func onAnyHost(r *deviceReport) {
	for i := range r.Devices[:len(r.Devices)-1] {
		r.Devices[i].Cores = [...]string{"0-31", "32-63"}[i/4]
	}
	cpu := &r.Devices[len(r.Devices)-1]
	cpu.Name, cpu.Memory = "AMD EPYC 7763 64-Core Processor", 64<<30
	cpu.Status.Memory = gpu.Memory{Total: 64 << 30, Free: 32 << 30, Used: 32 << 30}
}

func TestGpus_Table(t *testing.T) {
	r := inspectDevices(machineOfAll(t))
	onAnyHost(r)
	var b bytes.Buffer
	require.NoError(t, r.print(&b))
	golden(t, "gpus_all", b.String())
	b.Reset()
	require.NoError(t, printJSON(&b, r)) // docs/gpus.schema.json describes it
	golden(t, "gpus_json", b.String())
}
