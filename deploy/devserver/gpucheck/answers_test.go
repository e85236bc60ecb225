package gpucheck

import (
	"testing"

	"github.com/gpumux/gpumux/gpu/gputest"
)

// The driver's libraries answer what is written down after NVIDIA's documentation, as the stand-ins do.
func TestGPU_Answers(t *testing.T) {
	onGPU(t)
	gputest.CheckAnswers(t, python(), nil)
}
