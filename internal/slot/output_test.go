package slot_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/slot"
)

func TestSlot_OutputStandsUnderItsItem(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, python(dir, "hello"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(ints(20)...)})
		require.NoError(t, err)
		for i, d := range got {
			require.Equal(t, fmt.Sprintf("hello %d\nraw %d\nchild %d\nINFO:root:logged %d\n", i, i, i, i), d.Printed)
		}
	}
}

// A task that configures logging gets what it asked for, at the import or in an item.
func TestSlot_LoggingIsTheTasks(t *testing.T) {
	for where, code := range map[string]string{"at the import": "set_up()\ndef log(x):\n    ", "in the item": "def log(x):\n    set_up()\n    "} {
		for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
			dir, file := t.TempDir(), filepath.Join(t.TempDir(), "log")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte("import logging\n"+
				"def set_up(): logging.basicConfig(level=logging.WARNING, format='%(message)s of mine', filename="+strconv.Quote(file)+")\n"+
				code+"logging.info('fine'); logging.warning('warned %s', x)\n"), 0o644))
			got, err := run(t, newSlot(t), python(dir, "log"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(1)})
			require.NoError(t, err)
			require.Empty(t, got[0].Printed, where)
			logged, err := os.ReadFile(file)
			require.NoError(t, err, where)
			require.Equal(t, "warned 1 of mine\n", string(logged), where)
		}
	}
}

// A thread that a task leaves behind holds up the end of its process, which is said once.
func TestSlot_ProcessesThatDoNotEndAreSaid(t *testing.T) {
	var notices notice.List
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"),
		[]byte("import threading\ndef leave(x):\n    threading.Thread(target=threading.Event().wait).start()\n    return x\n"), 0o644))
	s := slot.New(slot.Options{
		Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: 100 * time.Millisecond, Notices: &notices,
	})
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	got, err := run(t, s, python(dir, "leave"), slot.Call{Call: calls.Call{Mode: gpumux.ModeFresh}, Work: work(ints(3)...)})
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Eventually(t, func() bool { return s.State() == slot.Vacant }, time.Minute, time.Millisecond)
	require.Len(t, notices.All(), 1, "%q", notices.All())
	require.Contains(t, notices.All()[0], "task leave: after their last item, processes of a task do not end by themselves; each is killed after 100ms")
	require.Contains(t, notices.All()[0], "daemon=True")
}

func TestSlot_TasksThatRaiseAtTheirEndAreSaid(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		var notices notice.List
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"),
			[]byte("class Sink:\n    def __call__(self, x): return x\n    def close(self):\n        print('it ends', flush=True)\n        raise OSError('no space left\\nanywhere')\n"), 0o644))
		s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Notices: &notices})
		got, err := run(t, s, python(dir, "Sink"), slot.Call{Call: calls.Call{Mode: mode}, Work: work(ints(3)...)})
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.NoError(t, s.Stop(context.Background()))
		require.Len(t, notices.All(), 1, "%q", notices.All())
		require.Contains(t, notices.All()[0], "task Sink: the end of a task's process raised OSError: no space left", mode)
	}
}

func TestSlot_EndlessOutputIsCutInTheMiddle(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, python(dir, "flood"), slot.Call{Work: work(1000, 0)})
	require.NoError(t, err)
	require.Less(t, len(got[0].Printed), 20<<10)
	require.Contains(t, got[0].Printed, "bytes left out")
	require.Empty(t, got[1].Printed)
}
