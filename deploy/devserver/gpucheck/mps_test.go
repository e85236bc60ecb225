package gpucheck

import (
	"os/exec"
	"testing"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/gpu/mps"
	"github.com/gpumux/gpumux/gpu/mps/mpstest"
	"github.com/gpumux/gpumux/internal/skip"
)

// A daemon of the test's own, in the compute mode that the GPU has, does what gpumux builds on.
func TestGPU_MPS(t *testing.T) {
	m := onGPU(t)
	if _, err := exec.LookPath(mps.Program); err != nil {
		skip.Because(t, skip.Tool, mps.Program)
	}
	if m.device.Kind != gpu.KindGPU {
		skip.Because(t, skip.GPU, "only a MIG instance, on which MPS keeps to no limit")
	}
	mpstest.Contract(t, mpstest.Host{Device: m.device.UUID, Python: python()})
}
