package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/starter"
)

func (s *site) starter() *starter.Starter {
	s.t.Helper()
	st := &starter.Starter{Client: s.client, Namespace: s.namespace, Store: s.store}
	s.t.Cleanup(st.Close)
	return st
}

// peak is the most memory that a process has held, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// An item of 100 MB goes in and comes out through the store, and costs the worker a few
// times its size.
func TestLong_ScaleAnItemOfAHundredMegabytes(t *testing.T) {
	s := newSite(t)
	here := newShell(t)
	here.at(s)
	here.write("worker.yaml", fmt.Sprintf("store: %q\npools: [{name: cpu, devices: cpu, slots: 2}]\ntasks: {echo: {python: \"echo.py:echo\"}}\n", s.store))
	here.write("echo.py", "def echo(item): return item\n")
	w := here.begin("worker", "-f", "worker.yaml")
	const size = 100 << 20
	large := `"` + strings.Repeat("x", size) + `"`
	source := s.source("1\n" + large + "\n" + numbers(500))
	sum, err := s.run(gpumux.MapInput{Task: "echo", Source: source, Ladder: []string{"cpu"}, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 502, sum.Succeeded)
	for r, err := range s.starter().Completed(sum).Results(t.Context(), starter.ReadOptions{}) {
		require.NoError(t, err)
		switch r.Index {
		case 1:
			require.Len(t, r.Value, size+2)
		case 2:
			require.Equal(t, "0", string(r.Value))
		}
	}
	t.Logf("peak of the worker %s", gpumux.Size(peak(t, w.Process.Pid)))
	require.Less(t, peak(t, w.Process.Pid), int64(12*size))
}

// waiting is what the chunks in flight say that they wait for.
func waiting(t *testing.T, st *starter.Starter, id string) []string {
	t.Helper()
	d, err := st.Show(t.Context(), id)
	require.NoError(t, err)
	var why []string
	for _, p := range d.Pending {
		if p.Waiting != "" {
			why = append(why, p.Waiting)
		}
	}
	return why
}

// A disk that is full or read-only holds the map up until there is room again.
func TestScale_AFullDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	disk := filepath.Join(s.dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		rig.Because(t, rig.Mount, "a small disk: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	s.store = "file://" + filepath.Join(disk, "store")
	s.worker("cpu", 2)
	st := s.starter()
	const n = 1500
	run := s.start(gpumux.MapInput{Task: "brief", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Chunk: 50, Output: "maps/a/results.jsonl"})
	some := func(more int) {
		t.Helper()
		before := len(s.seen())
		rig.Wait(t, func() bool { return len(s.seen()) >= min(n, before+more) }, time.Minute, 10*time.Millisecond)
	}
	says := func(text string) {
		t.Helper()
		rig.Wait(t, func() bool {
			return slices.ContainsFunc(waiting(t, st, run.GetID()), func(why string) bool { return strings.Contains(why, text) })
		}, time.Minute, 100*time.Millisecond, text)
	}
	some(100)
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	_ = f.Close()
	says("no space left on device")
	require.NoError(t, os.Remove(ballast))
	some(200)
	require.Eventually(t, func() bool {
		return unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil // not while a file is being written
	}, time.Minute, time.Millisecond)
	says("read-only file system")
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, "size=16m"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var sum gpumux.Summary
	require.NoError(t, run.Get(ctx, &sum))
	require.EqualValues(t, n, sum.Succeeded)
	s.results(sum)
	s.calledOnce(n)
}
