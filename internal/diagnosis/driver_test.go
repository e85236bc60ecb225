package diagnosis

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// NVIDIA's own names and texts of three drivers mean what the codes mean that the rules
// list, in the forms in which the frameworks print them.
func TestDiagnose_DriversWordsMeanTheirCodes(t *testing.T) {
	files, err := filepath.Glob("testdata/cuda-*.txt")
	require.NoError(t, err)
	require.Len(t, files, 3)
	var known []int
	for i := range rules {
		known = append(known, rules[i].codes...)
	}
	tried := map[int]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if number == "cuInit" {
				continue
			}
			name, text, _ := strings.Cut(rest, " ")
			code, err := strconv.Atoi(number)
			require.NoError(t, err, line)
			if !slices.Contains(known, code) {
				continue
			}
			tried[code] = true
			byCode := Diagnose(Evidence{Class: "torch.AcceleratorError", Code: code, MPS: true})
			for _, message := range []string{name, name + ": " + text, "CUDA error: " + text, "CUDA driver error: " + text, "CUDA error: " + name} {
				d := Diagnose(Evidence{Class: "RuntimeError", Message: message, MPS: true})
				d.Fault.Class, d.Fault.Message = byCode.Fault.Class, byCode.Fault.Message
				require.Equal(t, byCode, d, "%s: %s (%d)", file, message, code)
			}
		}
	}
	// Only the runtime has 35, and only later drivers the others.
	for _, code := range known {
		require.True(t, tried[code] || slices.Contains([]int{35, 226, 721}, code), "code %d", code)
	}
}
