package gpucheck

import (
	_ "embed"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

// What the libraries answer, as NVIDIA's documentation has it. Codes that are all good
// stand side by side, as in "call: 0|3".
var (
	//go:embed testdata/answers.py
	answers string
	//go:embed testdata/cuda.txt
	cudaAnswers string
	//go:embed testdata/nvml.txt
	nvmlAnswers string
)

// checkAnswers holds the libraries of CUDA and NVML, the driver's or these here, to what
// is written down. A difference is news: see what in gpumux reads that answer, then write
// it down. Env is what the libraries need beside the environment of the test.
func checkAnswers(t *testing.T, python string, env []string) {
	for name, known := range map[string]string{"cuda": cudaAnswers, "nvml": nvmlAnswers} {
		t.Run(name, func(t *testing.T) {
			ask := exec.Command(python, "-c", answers, name)
			ask.Env = append(os.Environ(), env...)
			output, err := ask.CombinedOutput()
			if err != nil {
				t.Fatalf("ask %s: %v\n%s", name, err, output)
			}
			wanted, got := strings.Split(known, "\n"), strings.Split(string(output), "\n")
			if len(wanted) != len(got) {
				t.Fatalf("%d answers, not %d:\n%s", len(got), len(wanted), output)
			}
			for i, line := range got {
				if !expected(wanted[i], line) {
					t.Errorf("%s answers %q; testdata/%s.txt has %q", name, line, name, wanted[i])
				}
			}
		})
	}
}

// expected reports whether a line says what is written down: the call, one of the codes,
// and the same words.
func expected(wanted, line string) bool {
	call, rest, _ := strings.Cut(wanted, ": ")
	codes, words, _ := strings.Cut(rest, " ")
	asked, answer, _ := strings.Cut(line, ": ")
	code, output, _ := strings.Cut(answer, " ")
	return call == asked && slices.Contains(strings.Split(codes, "|"), code) && words == output
}

// The driver's libraries answer what is written down after NVIDIA's documentation.
func TestGPU_Answers(t *testing.T) {
	onGPU(t)
	checkAnswers(t, python(), nil)
}

// The stand-ins answer the same.
func TestAnswers_StandIns(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}}})
	checkAnswers(t, python(), m.Env())
}
