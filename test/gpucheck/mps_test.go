package gpucheck

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// A daemon of the test's own, in the compute mode that the GPU has, does what gpumux
// builds on.
func TestGPU_MPS(t *testing.T) {
	m := onGPU(t)
	if _, err := exec.LookPath(mps.Program); err != nil {
		rig.Because(t, rig.Tool, mps.Program)
	}
	if m.device.Kind != gpu.KindGPU {
		rig.Because(t, rig.GPU, "only a MIG instance, on which MPS keeps to no limit")
	}
	contract(t, gputest.MPSHost{Device: m.device.UUID, Python: python()})
}

// The stand-in keeps to the same.
func TestMPS_StandIn(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}}})
	t.Setenv("PATH", m.Folder+":"+os.Getenv("PATH"))
	contract(t, gputest.MPSHost{Device: "GPU-00000000-0000-0000-0000-000000000000", Python: python(), Env: m.Env()})
}
