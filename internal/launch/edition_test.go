package launch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}

// A command is written in more files than its first word: the script of an interpreter is
// its second, a configuration a later one.
func TestEdition_NamedIsOfEveryFileOfACommand(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sim.py", "conf.yaml", "run.sh", "other"} {
		write(t, filepath.Join(dir, name), "one")
	}
	for command, files := range map[string][]string{"sh": {"sim.py", "conf.yaml"}, "./run.sh": {"run.sh", "sim.py", "conf.yaml"}} {
		code := Code{Dir: dir, Command: []string{command, "-u", "sim.py", "--config", "conf.yaml"}}
		before := code.Named()
		require.Len(t, before, 6)
		write(t, filepath.Join(dir, "other"), "two")
		require.Equal(t, before, code.Named(), "a file that the command does not name")
		for _, name := range files {
			write(t, filepath.Join(dir, name), "two")
			require.NotEqual(t, before, code.Named(), "%s of %s", name, command)
			write(t, filepath.Join(dir, name), "one")
		}
		require.Equal(t, before, code.Named())
	}
	wc := Code{Command: []string{"sh", "-c", "wc -w"}}
	require.NotEqual(t, wc.Edition(), Code{Command: []string{"sh", "-c", "wc -l"}}.Edition(), "what a shell is given is code")
	require.Equal(t, wc.Edition(), Code{Command: []string{"/bin/sh", "-c", "wc -w"}}.Edition(), "a program of the system goes by its name")
	require.Empty(t, Code{}.Edition())
}

// What a command reads and writes is not its code: a log that it makes must not end the
// map that it runs in.
func TestEdition_DataOfACommandIsNotItsCode(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"sim.py", "run.sh", "tool.jl"} {
		write(t, filepath.Join(dir, name), "one")
	}
	for command, files := range map[string][]string{"sh": {"sim.py", "tool.jl"}, "./run.sh": {"run.sh", "sim.py", "tool.jl"}} {
		code := Code{Dir: dir, Command: []string{command, "sim.py", "--log", "sim.log", "--with", "tool.jl"}}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "sim.log")))
		before := code.Edition()
		write(t, filepath.Join(dir, "sim.log"), "began")
		require.Equal(t, before, code.Edition())
		for _, name := range files {
			write(t, filepath.Join(dir, name), "two")
			require.NotEqual(t, before, code.Edition(), "%s of %s", name, command)
			write(t, filepath.Join(dir, name), "one")
		}
	}
	inline := Code{Dir: dir, Command: []string{"sh", "-c", "cat $0", "sim.log"}}
	before := inline.Edition()
	write(t, filepath.Join(dir, "sim.log"), "more")
	require.Equal(t, before, inline.Edition())
}

// Workers that have the same code in different folders have the same edition of it.
func TestEdition_DoesNotDependOnThePlace(t *testing.T) {
	var editions [][]string
	for range 2 {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "task.py"), "import near\n")
		write(t, filepath.Join(dir, "near.py"), "x = 1\n")
		write(t, filepath.Join(dir, "task"), "\x7fELF")
		var got []string
		for _, code := range []Code{
			{Dir: dir, Target: "task.py:f"}, {Dir: dir, Target: "task:f"}, {Dir: "/", Target: filepath.Join(dir, "task.py:f")},
			{Dir: dir, Command: []string{filepath.Join(dir, "task"), "-v"}}, {Dir: dir, Command: []string{"sh", "task.py"}},
		} {
			got = append(got, code.Edition())
		}
		editions = append(editions, got)
	}
	require.Equal(t, editions[0], editions[1])
	require.Equal(t, editions[0][0], editions[0][2])
}

func TestEdition_OtherFunctionOfTheFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "task.py"), "")
	require.NotEqual(t, Code{Dir: dir, Target: "task.py:f"}.Edition(), Code{Dir: dir, Target: "task.py:g"}.Edition())
	require.NotEqual(t, Code{Dir: dir, Target: "json:dumps"}.Edition(), Code{Dir: dir, Target: "pickle:dumps"}.Edition())
}

// A change of the same size within the same tick of the clock is a change.
func TestEdition_SameSizeAndTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task.py")
	code := Code{Target: path + ":f"}
	now := time.Now()
	write(t, path, "x = 1")
	require.NoError(t, os.Chtimes(path, now, now))
	before := code.Edition()
	write(t, path, "x = 2")
	require.NoError(t, os.Chtimes(path, now, now))
	require.NotEqual(t, before, code.Edition())
}

// What has not changed is not read again.
func TestLook_ReadsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "task.py")
	write(t, path, "import json")
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, old, old))
	first := readFile(path)
	require.Equal(t, []string{"json"}, first.names)
	require.Same(t, first, readFile(path))
	write(t, path, "import math")
	require.Equal(t, []string{"math"}, readFile(path).names)
}

// A large file counts by its size and by both ends, so that it need not be read whole:
// the file here is one hole.
func TestEdition_LargeFile(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	code := Code{Dir: dir, Command: []string{"cat", "model"}}
	write(t, model, "")
	require.NoError(t, os.Truncate(model, wholeFile+1))
	before := code.Edition()
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(model, later, later))
	require.Equal(t, before, code.Edition(), "the time differs between machines")
	for _, at := range []int64{5, wholeFile, wholeFile/2 - 1} {
		file, err := os.OpenFile(model, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = file.WriteAt([]byte("x"), at)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.NotEqual(t, before, code.Edition(), "written to at %d", at)
		before = code.Edition()
	}
	require.NoError(t, os.Truncate(model, wholeFile+2))
	require.NotEqual(t, before, code.Edition())
}

func TestNewest_NamesWhatChangedLast(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"task.py", "near.py", "plugin.py"} {
		write(t, filepath.Join(dir, name), "import near")
		at := time.Unix(int64(1_700_000_000+i), 0)
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), at, at))
	}
	code := Code{Dir: dir, Target: "task:f"}
	path, changed := code.Newest()
	require.Equal(t, filepath.Join(dir, "near.py"), path)
	require.Equal(t, int64(1_700_000_001), changed.Unix())
}
