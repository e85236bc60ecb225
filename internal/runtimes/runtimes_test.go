package runtimes

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var some = fstest.MapFS{"a/main.py": {Data: []byte("print(1)")}, "a/__init__.py": {}, "b.R": {Data: []byte("1\n")}}

func TestFiles_AreThereOnceAndVerified(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	home, err := unpack(dir, some)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, hashOf(some)), home)
	require.FileExists(t, filepath.Join(home, "a", "__init__.py"))
	before, err := os.Stat(filepath.Join(home, "b.R"))
	require.NoError(t, err)

	again, err := unpack(dir, some)
	require.NoError(t, err)
	require.Equal(t, home, again)
	after, err := os.Stat(filepath.Join(home, "b.R"))
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "a whole copy is left as it is")
	require.Equal(t, []string{hashOf(some)}, names(t, dir))
}

func TestFiles_ReplaceADamagedCopy(t *testing.T) {
	dir := t.TempDir()
	home, err := unpack(dir, some)
	require.NoError(t, err)
	for _, damage := range []func() error{
		func() error { return os.WriteFile(filepath.Join(home, "b.R"), []byte("print('other')"), 0o644) },
		func() error { return os.Remove(filepath.Join(home, "a", "__init__.py")) },
		func() error { return os.RemoveAll(filepath.Join(home, "a")) },
	} {
		require.NoError(t, damage())
		_, err := unpack(dir, some)
		require.NoError(t, err)
		whole(t, home)
		require.Equal(t, []string{hashOf(some)}, names(t, dir), "nothing is left lying about")
	}
}

func TestFiles_ManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if _, err := unpack(dir, some); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	whole(t, filepath.Join(dir, hashOf(some)))
	require.Equal(t, []string{hashOf(some)}, names(t, dir))
}

func TestFiles_WhatIsInTheWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := unpack(file, some)
	require.ErrorContains(t, err, "not a directory")
}

// whole checks that a folder has the files and nothing else.
func whole(t *testing.T, home string) {
	t.Helper()
	var all []string
	require.NoError(t, walk(os.DirFS(home), func(name string, content []byte) error {
		require.Equal(t, string(some[name].Data), string(content), name)
		all = append(all, name)
		return nil
	}))
	require.Len(t, all, len(some))
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

func TestPython_HasAllFiles(t *testing.T) {
	main, err := Python(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"main.py", "../__init__.py", "__init__.py", "child/sitecustomize.py"} {
		require.FileExists(t, filepath.Join(filepath.Dir(main), name))
	}
}
