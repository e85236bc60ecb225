package columns_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// values are results as they are stored: JSON, arrays as bytes, or a fault for nil.
func values(all ...any) (results []gpumux.Result) {
	for i, v := range all {
		r := gpumux.Result{Index: int64(i)}
		switch v := v.(type) {
		case nil:
			r.Fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "bad item", Op: "run"}
		case string:
			r.Value = json.RawMessage(v)
		case []byte:
			r.Arrays = v
		}
		results = append(results, r)
	}
	return results
}

// one is an array of at most 255 numbers in one dimension, or in several.
func one(kind string, data string, shape ...byte) []byte {
	b := append([]byte{2}, kind...)
	b = append(b, byte(len(shape)), 0)
	for _, n := range shape {
		b = append(b, n, 0, 0, 0, 0, 0, 0, 0)
	}
	return append(b, data...)
}

// around is an array inside JSON.
func around(before string, array []byte, after string) []byte {
	b := []byte{3}
	for _, piece := range []string{before, string(array[1:]), after} {
		b = append(b, byte(len(piece)), 0, 0, 0, 0, 0, 0, 0)
		b = append(b, piece...)
	}
	return b
}

// write writes results into a file, by way of a store.
func write(t *testing.T, results []gpumux.Result) (path string, err error) {
	t.Helper()
	path, _, err = writeAs(t, results, nil)
	return path, err
}

func writeAs(t *testing.T, results []gpumux.Result, declared columns.Schema) (path string, unfit *columns.UnfitError, err error) {
	t.Helper()
	s, err := store.Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer s.Close()
	storetest.Write(t, s, contract.PartsOf("r"), results)
	in, err := s.Folder(contract.PartsOf("r"))
	require.NoError(t, err)
	tail := in.Tail(true)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "x.parquet")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	to := columns.NewWriter(file, declared)
	for line, err := range tail.Lines(t.Context(), nil) {
		require.NoError(t, err)
		if err := to.Add(line); err != nil {
			return path, nil, err
		}
	}
	err = to.Finish()
	return path, to.Unfit, err
}

func need(t *testing.T, modules string, reason rig.Reason) {
	t.Helper()
	if out, err := exec.Command(os.Getenv("GPUMUX_TEST_PYTHON"), "-c", "import "+modules).CombinedOutput(); err != nil {
		rig.Because(t, reason, string(out), err)
	}
}

// python runs a program over a file and returns what it prints.
func python(t *testing.T, program string, paths ...string) string {
	t.Helper()
	out, err := exec.Command(os.Getenv("GPUMUX_TEST_PYTHON"), append([]string{"-c", program}, paths...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}
