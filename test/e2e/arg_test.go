package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// A large argument goes through the store to every process, and is no part of a history.
func TestArg_OfMegabytes(t *testing.T) {
	s := newStage(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "shared.py"), []byte(`
import gpumux, os

def size(x):
    if x == 1 and not os.path.exists("mended"):
        raise ValueError("not yet")
    return len(gpumux.arg()["text"]) + x
`), 0o644))
	s.work()
	m := s.over("", 3)
	m.Input.Task, m.ID = "shared:size", "large"
	m.Input.Arg = json.RawMessage("{ \"text\":\n\"" + strings.Repeat("x", 3<<20) + `"}`)
	h := s.start(m)
	summary, err := s.wait(h)
	require.NoError(t, err)
	require.EqualValues(t, 1, summary.Failed)
	in, err := h.Input(t.Context())
	require.NoError(t, err)
	require.Nil(t, in.Arg)
	require.FileExists(t, filepath.Join(s.dir, "store", in.ArgFile[strings.LastIndex(in.ArgFile, "sources/"):]))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "mended"), nil, 0o644))
	m.Retry = true
	h = s.start(m)
	summary, err = s.wait(h)
	require.NoError(t, err)
	require.EqualValues(t, 3, summary.Succeeded)
	var values []string
	for _, r := range s.results(h) {
		values = append(values, string(r.Value))
	}
	require.Equal(t, []string{"3145728", "3145729", "3145730"}, values)

	for name, c := range map[string]struct{ content, says string }{
		"none.json": {"", "argFile: "}, "text.json": {"text", "is not JSON"}, "large.json": {`"` + strings.Repeat("x", gpumux.MaxArgFile) + `"`, "more than 16MiB"},
	} {
		if c.content != "" {
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "store", name), []byte(c.content), 0o644))
		}
		m := s.over("", 3)
		m.Input.Task, m.Input.ArgFile = "shared:size", name
		_, err := s.wait(s.start(m))
		var fault *gpumux.Fault
		require.ErrorAs(t, err, &fault, name)
		require.Equal(t, gpumux.FaultBadInput, fault.Kind, name)
		require.Contains(t, fault.Message, c.says)
	}
	m = s.over("double", 3)
	m.Input.Arg = json.RawMessage(`"` + strings.Repeat("x", gpumux.MaxArgFile) + `"`)
	_, err = s.Start(t.Context(), m)
	require.ErrorContains(t, err, "more than 16MiB")
}
