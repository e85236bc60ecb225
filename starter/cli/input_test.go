package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestReadItems_Glob(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"b.png", "a.png", "x <&>.png", "c.txt", "deep/er/d.png", "deep/e.png"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		write(t, name, "")
	}
	require.NoError(t, os.Mkdir("folder.png", 0o755))
	for pattern, want := range map[string][]string{
		"*.png":                {"a.png", "b.png", "x <&>.png"},
		"deep/*.png":           {"deep/e.png"},
		"**/*.png":             {"a.png", "b.png", "deep/e.png", "deep/er/d.png", "x <&>.png"},
		"deep/**/*.png":        {"deep/e.png", "deep/er/d.png"},
		"**/er/*.png":          {"deep/er/d.png"},
		dir + "/deep/**/*.png": {"deep/e.png", "deep/er/d.png"},
	} {
		over, err := globItems(t.Context(), pattern)
		require.NoError(t, err, pattern)
		all, err := over.spooled.All()
		require.NoError(t, err)
		var got []string
		for _, item := range all {
			got = append(got, string(item))
		}
		over.remove()
		for i, name := range want {
			want[i] = `"` + filepath.Join(dir, name) + `"`
		}
		require.Equal(t, want, got, pattern)
	}
}

func TestReadItems_Range(t *testing.T) {
	a := &app{}
	over, err := a.readItems(t.Context(), "", "5:1005", "")
	require.NoError(t, err)
	require.Equal(t, &gpumux.Range{Start: 5, End: 1005}, over.rng)
}

// A terminal that says nothing must not hold up an interrupt.
func TestReadItems_InterruptedWhileTheStreamBlocks(t *testing.T) {
	silent, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := &app{Options: Options{Stdin: silent}}
	ended := make(chan error)
	go func() {
		_, err := a.readItems(ctx, "-", "", "")
		ended <- err
	}()
	cancel(errInterrupted)
	require.Equal(t, ExitInterrupted, exitCode(<-ended))
}

func TestFailedLine(t *testing.T) {
	require.True(t, failedLine([]byte(`{"index":123456789012,"fault":{"kind":"crash"}}`)))
	require.False(t, failedLine([]byte(`{"index":0,"value":{"fault":1}}`)))
	require.False(t, failedLine([]byte(`{"index":0,"value":"a,\"fault\""}`)))
	require.False(t, failedLine(nil))
}
