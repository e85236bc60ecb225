package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

const vecPy = `
import os, numpy

def vector(item):
    return numpy.array([0.1, item], "f4")

def fields(item):
    if item == 3 and not os.path.exists("fixed"):
        raise ValueError("not yet")
    return {"id": item, "vector": numpy.array([0.1, item], "f4")}

def norm(item):
    return [len(item), item["vector"][1] * 2]
`

// numPy is a Python with NumPy.
func numPy(t *testing.T) string {
	t.Helper()
	python := os.Getenv("GPUMUX_TEST_PYTHON")
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		rig.Because(t, rig.NumPy, python, string(out))
	}
	return python
}

// Arrays keep their type and every bit on the way from a task into a file, also over a
// retry.
func TestArrays_FromTheTaskIntoAFile(t *testing.T) {
	t.Parallel()
	python := numPy(t)
	s := newShell(t)
	s.write("vec.py", vecPy)
	mapping := func(task string, more ...string) []string {
		return append([]string{"map", "vec.py:" + task, "--local", "--slots", "2", "--python", python}, more...)
	}
	s.run(1, mapping("fields", "--range", "0:1500", "--out", "f.parquet")...)
	s.write("fixed", "")
	s.run(0, mapping("fields", "--range", "0:1500", "--out", "f.parquet", "--retry")...)
	s.run(0, mapping("norm", "--in", "f.parquet", "--columns", "vector,id", "--out", "n.jsonl")...)
	lines := s.lines(s.file("n.jsonl"))
	require.Len(t, lines, 1500)
	require.Equal(t, "[2,6.0]", string(lines[3]["value"]))
	require.Equal(t, "[2,22.0]", string(lines[11]["value"]))

	s.run(0, mapping("fields", "--range", "0:3", "--out", "few.parquet")...)
	s.run(0, mapping("norm", "--in", "few.parquet", "--out", "n.jsonl")...)
	require.Equal(t, "[5,4.0]", string(s.lines(s.file("n.jsonl"))[2]["value"]), "index, id, vector and the columns of faults")
	s.run(0, mapping("vector", "--range", "0:1200", "--out", "v.jsonl")...)
	require.Equal(t, `{"index":7,"value":[0.1,7.0]}`, strings.Split(s.file("v.jsonl"), "\n")[7])
}
