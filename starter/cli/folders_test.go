package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leave makes a folder as a local map leaves it.
func leave(t *testing.T, root, id string, used time.Time, command ...string) string {
	t.Helper()
	path := filepath.Join(root, id)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "store"), 0o700))
	file := filepath.Join(path, "store", "part")
	require.NoError(t, os.WriteFile(file, make([]byte, 1000), 0o600))
	if len(command) > 0 {
		data, err := json.Marshal(localState{ID: id, Folder: "/work", Command: command})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(path, noteFile), data, 0o600))
	}
	for _, p := range []string{file, filepath.Join(path, noteFile), filepath.Join(path, "store"), path} {
		if err := os.Chtimes(p, used, used); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	return path
}

func listLocal(t *testing.T) (states []localState) {
	t.Helper()
	o := run(t, "", "local", "--json")
	require.Zero(t, o.code, o.stderr)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &states))
	return states
}

func TestLocal_ListsAndRemoves(t *testing.T) {
	lonely(t)
	root, err := stateFolder("local")
	require.NoError(t, err)
	o := run(t, "", "local")
	require.Zero(t, o.code)
	require.Contains(t, o.stderr, "no local map has anything left in "+root)
	require.Empty(t, listLocal(t))

	now := time.Now().Truncate(time.Second)
	old := leave(t, root, "map-old", now.Add(-time.Hour), "gpumux", "map", "a.py:f", "--in", "it's items.jsonl", "--local")
	kept := leave(t, root, "map-kept", now.Add(-time.Minute))
	require.NoError(t, os.MkdirAll(filepath.Join(kept, "delivered"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(kept, "delivered", "map-kept"), []byte("run\n"), 0o600))
	busy := leave(t, root, "map-busy", now)
	hold, err := holdFolder(busy, "map-busy")
	require.NoError(t, err)
	defer hold.release()

	states := listLocal(t)
	require.Len(t, states, 3)
	require.Equal(t, []string{"map-busy", "map-kept", "map-old"}, []string{states[0].ID, states[1].ID, states[2].ID})
	require.Equal(t, []string{"running", "kept", "interrupted"}, []string{states[0].State, states[1].State, states[2].State})
	require.Equal(t, "/work", states[2].Folder)
	require.Equal(t, now.Add(-time.Hour).Unix(), states[2].Used.Unix())
	require.Greater(t, states[2].Bytes, int64(1000))
	o = run(t, "", "local")
	require.Contains(t, o.stdout, `gpumux map a.py:f --in 'it'\''s items.jsonl' --local`)

	o = run(t, "", "local", "--remove", "map-old", "map-busy", "nope")
	require.Equal(t, ExitUsage, o.code)
	require.Contains(t, o.stderr, "map-busy: it runs")
	require.Contains(t, o.stderr, "nope: there is no such local map")
	require.DirExists(t, old, "nothing goes when one cannot")
	for _, args := range [][]string{{"local", "--all"}, {"local", "map-old"}, {"local", "--remove"}, {"local", "--remove", "--all", "map-old"}} {
		require.Equal(t, ExitUsage, run(t, "", args...).code, args)
	}

	o = run(t, "", "local", "--remove", "map-old")
	require.Zero(t, o.code, o.stderr)
	require.NoDirExists(t, old)
	require.DirExists(t, kept)
	o = run(t, "", "local", "--remove", "--all")
	require.Zero(t, o.code, o.stderr)
	require.NoDirExists(t, kept)
	require.DirExists(t, busy)
}
