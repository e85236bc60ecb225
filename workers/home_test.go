package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// The runtime lies where other users can read it, and each has a home.
func TestWorker_HomesOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		rig.Because(t, rig.Root, "it runs tasks as others")
	}
	home := filepath.Join(os.TempDir(), "gpumux-54321")
	train := &process.User{Name: "54321", UID: 54321, GID: 54322, Home: home}
	w := &Worker{tasks: config.NewCatalog(map[string]launch.Task{"train": {User: train}})}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	path, err := w.installRuntimes()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(w.scratch)) })
	require.Contains(t, path, w.scratch)
	require.True(t, train.HasHome())
	require.NoError(t, train.MakeHome(), "it is used again")
	require.NoError(t, os.Remove(home))
	require.NoError(t, os.Symlink("/etc", home))
	require.ErrorContains(t, train.MakeHome(), "make the home "+home, "a link that somebody put there is not")
}

// An image may bring the runtime in a folder that nobody can write.
func TestWorker_AHomeWhereTheCacheCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "home"), nil, 0o600))
	t.Setenv("TMPDIR", t.TempDir())
	w := &Worker{}
	require.NoError(t, w.makeHomes(dir, nil))
	require.Equal(t, filepath.Join(os.TempDir(), fmt.Sprintf("gpumux-home-%d", os.Getuid())), w.home)
	require.True(t, (&process.User{UID: uint32(os.Getuid()), Home: w.home}).HasHome())
}
