package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// leave makes a folder as a local map leaves it.
func leave(t *testing.T, root, id string, used time.Time, command ...string) string {
	t.Helper()
	path := filepath.Join(root, id)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "store"), 0o700))
	file := filepath.Join(path, "store", "part")
	require.NoError(t, os.WriteFile(file, make([]byte, 1000), 0o600))
	if len(command) > 0 {
		data, err := json.Marshal(local.State{ID: id, Folder: "/work", Command: command})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(path, "map.json"), data, 0o600))
	}
	for _, p := range []string{file, filepath.Join(path, "map.json"), filepath.Join(path, "store"), path} {
		if err := os.Chtimes(p, used, used); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	return path
}

// use keeps the folder of a map in use until the test ends.
func use(t *testing.T, id string) {
	t.Helper()
	task, err := local.FindTask("", config.Task{Command: []string{"cat"}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	begun, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		_, _, _ = local.Map(ctx, local.Options{Task: task,
			Server: func(ctx context.Context, _ local.ServerOptions) (local.Server, error) {
				close(begun)
				<-ctx.Done()
				return nil, ctx.Err()
			}}, &starter.Map{ID: id, Input: gpumux.MapInput{Range: &gpumux.Range{End: 1}}})
	}()
	<-begun
	t.Cleanup(func() {
		cancel()
		<-over
	})
}

func listLocal(t *testing.T) (states []local.State) {
	t.Helper()
	o := run(t, "", "local", "--json")
	require.Zero(t, o.code, o.stderr)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &states))
	return states
}

func TestLocal_ListsAndRemoves(t *testing.T) {
	lonely(t)
	root, err := local.Folder("local")
	require.NoError(t, err)
	o := run(t, "", "local")
	require.Zero(t, o.code)
	require.Contains(t, o.stderr, "no local map has anything left in "+root)
	require.Empty(t, listLocal(t))

	now := time.Now().Truncate(time.Second)
	old := leave(t, root, "map-old", now.Add(-time.Hour), "gpumux", "map", "a.py:f", "--in", "it's items.jsonl", "--local")
	kept := leave(t, root, "map-kept", now.Add(-time.Minute))
	note := filepath.Join(kept, "map.json")
	require.NoError(t, os.WriteFile(note, []byte(`{"delivered":"run"}`), 0o600))
	require.NoError(t, os.Chtimes(note, now.Add(-time.Minute), now.Add(-time.Minute)))
	busy := leave(t, root, "map-busy", now)
	use(t, "map-busy")

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
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "map-busy: it runs")
	require.Contains(t, o.stderr, "nope: there is no such local map")
	require.DirExists(t, old, "nothing goes when one cannot")
	for _, args := range [][]string{{"local", "--all"}, {"local", "map-old"}, {"local", "--remove"}, {"local", "--remove", "--all", "map-old"}} {
		require.Equal(t, exitUsage, run(t, "", args...).code, args)
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
