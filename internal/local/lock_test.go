package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A map that ends removes its folder under the lock. Whoever waited for it gets a folder
// of its own, not the lock on a file that is gone.
func TestHoldFolder_OfAMapThatEnds(t *testing.T) {
	data := filepath.Join(t.TempDir(), "map-1")
	first, _, err := holdFolder(t.Context(), data, true)
	require.NoError(t, err)
	got := make(chan *os.File, 1)
	go func() {
		hold, _, err := holdFolder(t.Context(), data, true)
		if err != nil {
			t.Error(err)
		}
		got <- hold
	}()
	hold, holders, err := claimFolder(data)
	require.NoError(t, err)
	require.Nil(t, hold)
	require.Len(t, holders, 1)
	require.Contains(t, holders[0], fmt.Sprintf("process %d of ", os.Getpid()))
	require.NoError(t, removeFolder(data, first))
	second := <-got
	require.NotNil(t, second)
	defer second.Close()
	present, err := os.Stat(filepath.Join(data, lockFile))
	require.NoError(t, err)
	locked, err := second.Stat()
	require.NoError(t, err)
	require.True(t, os.SameFile(present, locked))
	require.DirExists(t, filepath.Join(data, "store"))
}

// A start that fails forgets none of those whose work it has not handed on.
func TestClaimFolder_KeepsTheHoldersBefore(t *testing.T) {
	data := t.TempDir()
	path := filepath.Join(data, lockFile)
	require.NoError(t, os.WriteFile(path, []byte("process 7 of here\n"), 0o600))
	for i, want := range []int{1, 2, 1} {
		hold, holders, err := claimFolder(data)
		require.NoError(t, err)
		require.Len(t, holders, want)
		if i < 2 {
			require.Equal(t, "process 7 of here", holders[0])
		}
		if i == 1 {
			require.NoError(t, writeHolder(hold, 0), "it has taken over")
		}
		require.NoError(t, hold.Close())
	}
}

func TestTidy_KeepsWithinBounds(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	now := time.Now()
	keep := func(id string, made, kept bool, age time.Duration, bytes int64) {
		path, err := Folder("local", id)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(path, 0o700))
		noted := State{ID: id, Made: made}
		if kept {
			noted.Delivered = "run"
		}
		note, err := json.Marshal(noted)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(path, noteFile), note, 0o600))
		file, err := os.Create(filepath.Join(path, "sparse"))
		require.NoError(t, err)
		require.NoError(t, errors.Join(file.Truncate(bytes), file.Close()))
		require.NoError(t, filepath.WalkDir(path, func(name string, _ fs.DirEntry, _ error) error { return os.Chtimes(name, now, now.Add(-age)) }))
	}
	const day = 24 * time.Hour
	keep("new", true, true, time.Hour, keptBytes/2)
	keep("second", true, true, 2*time.Hour, keptBytes/4)
	keep("third", true, true, 3*time.Hour, keptBytes/2)
	keep("stopped", true, false, 29*day, keptBytes)
	keep("stopped-long-ago", true, false, 31*day, 1)
	keep("old", true, true, 31*day, 1)
	keep("named", false, true, 31*day, keptBytes)
	keep("running", true, true, 31*day, keptBytes)
	running, err := StateOf("running")
	require.NoError(t, err)
	hold, _, err := claimFolder(running.Path)
	require.NoError(t, err)
	defer hold.Close()

	half := running.Path + removedSuffix
	require.NoError(t, os.Mkdir(half, 0o700))

	require.NoError(t, tidy(now))
	require.NoDirExists(t, half, "whoever removed it was killed")
	states, err := States()
	require.NoError(t, err)
	var left []string
	for _, s := range states {
		left = append(left, s.ID)
	}
	require.ElementsMatch(t, []string{"new", "second", "stopped", "named", "running"}, left)
}
