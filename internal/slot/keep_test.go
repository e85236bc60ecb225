package slot_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

const saving = `
import gpumux, os
def save(x):
    gpumux.save("a.txt", "a%d" % x)
    if x % 2: gpumux.save("b.bin", bytes(x))
    return x
def flaky(path):
    first = not os.path.exists(path)
    open(path, "w").close()
    gpumux.save("first" if first else "second", b"x")
    if first: raise ValueError("first")
    return 1
def link(kind):
    gpumux.save("a", b"x")
    folder = gpumux._save.__self__._files._folder
    os.remove(folder + "/a")
    if kind == "link": os.symlink("/etc/passwd", folder + "/a")
    if kind == "pipe": os.mkfifo(folder + "/a")
    if kind == "folder":
        os.rmdir(folder)
        os.symlink("/etc", folder)
    return kind
def child(x):
    if os.fork() == 0:
        try: gpumux.save("a", b"x")
        except RuntimeError: os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])
@gpumux.batch(max=4)
def many(xs):
    gpumux.save("a", b"x")
    return xs
`

// kept collects the files of items, as "index/name": content.
type kept map[string]string

func (k kept) keep(_ context.Context, index int64, name string, file *os.File) error {
	text, err := io.ReadAll(file)
	k[strconv.FormatInt(index, 10)+"/"+name] = string(text)
	return err
}

// saver is a slot whose folders lie in a folder of the test's own, and a task of saving.
func saver(t *testing.T) (*slot.Slot, func(function string) launch.Task) {
	dir := t.TempDir()
	scratch := filepath.Join(dir, "scratch")
	require.NoError(t, os.Mkdir(scratch, 0o755))
	t.Setenv("TMPDIR", scratch)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(saving), 0o644))
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(scratch, "gpumux-files-*"))
		require.NoError(t, err)
		require.Empty(t, left, "nothing is left of the files")
	})
	return newSlot(t), func(function string) launch.Task { return python(dir, function) }
}

func TestKeep_EveryFileOfEveryItem(t *testing.T) {
	runtimePath(t)
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		t.Run(string(mode), func(t *testing.T) {
			s, task := saver(t)
			files := kept{}
			done, err := run(t, s, task("save"), slot.Call{Call: calls.Call{Mode: mode, Files: true}, Work: &gputest.Work{From: gputest.Values(0, 1, 2, 3), OnKeep: files.keep}})
			require.NoError(t, err)
			want := kept{"0/a.txt": "a0", "1/a.txt": "a1", "1/b.bin": "\x00", "2/a.txt": "a2", "3/a.txt": "a3", "3/b.bin": "\x00\x00\x00"}
			require.Equal(t, want, files)
			require.Len(t, done, 4)
			require.Equal(t, []string{"a.txt"}, done[2].Files)
			require.Equal(t, []string{"a.txt", "b.bin"}, done[3].Files)

			files = kept{}
			items := gputest.Values(filepath.Join(t.TempDir(), "there"))
			done, err = run(t, s, task("flaky"), slot.Call{Call: calls.Call{Mode: mode, Attempts: 2, Files: true}, Work: &gputest.Work{From: items, OnKeep: files.keep}})
			require.NoError(t, err)
			require.Equal(t, kept{"0/second": "x"}, files, "those of the try that failed are dropped")
			require.Equal(t, []string{"second"}, done[0].Files)
		})
	}
}

func TestKeep_WhereThereIsNoPlace(t *testing.T) {
	s, task := saver(t)
	done, err := run(t, s, task("save"), slot.Call{Work: work(1)})
	require.NoError(t, err)
	require.Contains(t, done[0].Fault.Message, "no place for files")
	done, err = run(t, s, task("many"), slot.Call{Call: calls.Call{Files: true}, Work: &gputest.Work{From: gputest.Values(1), OnKeep: kept{}.keep}})
	require.NoError(t, err)
	require.Contains(t, done[0].Fault.Message, "single items")
	done, err = run(t, s, task("child"), slot.Call{Call: calls.Call{Files: true}, Work: &gputest.Work{From: gputest.Values(1), OnKeep: kept{}.keep}})
	require.NoError(t, err)
	require.JSONEq(t, "7", string(done[0].Value), "a forked child is told that it cannot")
}

// A task that puts something else in the place of its files makes the worker read nothing
// else.
func TestKeep_OnlyFilesOfTheItem(t *testing.T) {
	s, task := saver(t)
	for _, kind := range []string{"link", "pipe", "folder"} {
		files := kept{}
		_, err := run(t, s, task("link"), slot.Call{Call: calls.Call{Files: true}, Work: &gputest.Work{From: gputest.Values(kind), OnKeep: files.keep}})
		require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind, kind)
		require.Empty(t, files)
	}
}

func TestKeep_AFailureEndsTheCall(t *testing.T) {
	s, task := saver(t)
	full := errors.New("the call is over")
	done, err := run(t, s, task("save"), slot.Call{Call: calls.Call{Files: true}, Work: &gputest.Work{From: gputest.Values(1, 2), OnKeep: func(context.Context, int64, string, *os.File) error { return full }}})
	require.ErrorIs(t, err, full)
	require.Empty(t, done)
	require.NoError(t, s.Clear(context.Background()))
	done, err = run(t, s, task("save"), slot.Call{Call: calls.Call{Files: true}, Work: &gputest.Work{From: gputest.Values(1, 2), OnKeep: kept{}.keep}})
	require.NoError(t, err)
	require.Len(t, done, 2)
}
