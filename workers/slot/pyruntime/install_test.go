package pyruntime

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstall_IsThereOnceAndVerified(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	main, err := Install(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, hash(), "gpumux", "main.py"), main)
	require.FileExists(t, filepath.Join(filepath.Dir(main), "__init__.py"))
	before, err := os.Stat(main)
	require.NoError(t, err)

	again, err := Install(dir)
	require.NoError(t, err)
	require.Equal(t, main, again)
	after, err := os.Stat(main)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "a whole copy is left as it is")
	require.Equal(t, []string{hash()}, names(t, dir))
}

func TestInstall_ReplacesADamagedCopy(t *testing.T) {
	dir := t.TempDir()
	main, err := Install(dir)
	require.NoError(t, err)
	for _, damage := range []func() error{
		func() error { return os.WriteFile(main, []byte("print('other')"), 0o644) },
		func() error { return os.Remove(filepath.Join(filepath.Dir(main), "__init__.py")) },
		func() error { return os.RemoveAll(filepath.Dir(main)) },
	} {
		require.NoError(t, damage())
		_, err := Install(dir)
		require.NoError(t, err)
		require.True(t, complete(filepath.Join(dir, hash())))
		require.Equal(t, []string{hash()}, names(t, dir), "nothing is left lying about")
	}
}

func TestInstall_ManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if _, err := Install(dir); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.True(t, complete(filepath.Join(dir, hash())))
	require.Equal(t, []string{hash()}, names(t, dir))
}

func TestInstall_SaysWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Install(file)
	require.ErrorContains(t, err, "install the Python runtime")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, hash()), nil, 0o600))
	_, err = Install(dir)
	require.NoError(t, err, "a file in the way is moved out of it")
}

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
