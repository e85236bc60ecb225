package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
)

func TestStates_OfFolders(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	states, err := local.States()
	require.NoError(t, err)
	require.Empty(t, states)
	require.ErrorIs(t, mapIn(t, "busy", func() {
		for _, name := range []string{"broken", "broken~", "kept"} {
			path, err := local.Folder("local", name)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(path, 0o700))
			write(t, filepath.Join(path, "map.json"), `{"ID":`)
		}
		kept, err := local.StateOf("kept")
		require.NoError(t, err)
		write(t, filepath.Join(kept.Path, "map.json"), `{"id":"other","delivered":"run","folder":"/work","command":["gpumux","map"],"output":"maps/kept/results.jsonl"}`)
		old := time.Now().Add(-time.Hour)
		for _, name := range []string{"kept/map.json", "kept"} {
			require.NoError(t, os.Chtimes(filepath.Join(filepath.Dir(kept.Path), name), old, old))
		}

		states, err := local.States()
		require.NoError(t, err)
		how := map[string]string{}
		for _, s := range states {
			how[s.ID] = s.State
		}
		require.Equal(t, map[string]string{"busy": "running", "broken": "interrupted", "kept": "kept"}, how)
		last := states[len(states)-1]
		require.Equal(t, []any{"kept", "/work", "maps/kept/results.jsonl", old.Unix()}, []any{last.ID, last.Folder, last.Output, last.Used.Unix()})
		require.NoError(t, last.Remove())
		require.NoDirExists(t, last.Path)
		busy, err := local.StateOf("busy")
		require.NoError(t, err)
		require.ErrorContains(t, busy.Remove(), "runs in process")
		require.DirExists(t, busy.Path)
	}), errAway)
	busy, err := local.StateOf("busy")
	require.NoError(t, err)
	require.Equal(t, "interrupted", busy.State)
}

// Nothing is left of a session in a folder of nobody's choice.
func TestOpen_ATemporaryFolderGoes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := local.Open(t.Context(), local.Options{Server: noServer})
	require.ErrorIs(t, err, errAway)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}
