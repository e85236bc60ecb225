//go:build soak

package soak

import (
	"bufio"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

const stagesPy = `
def text(item): return "%07d" % item + "x" * 2993
def number(text): return int(text[:7]) + len(text)
`

// A million values of 3 KB between two stages: server and worker in one process hold
// little of them.
func TestMillion_ThroughTwoStages(t *testing.T) {
	const n = 1_000_000
	dir, port := t.TempDir(), programtest.FreePort(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stages.py"), []byte(stagesPy), 0o644))
	dev := exec.Command(programtest.Binary(t), "dev", "--headless", "--port", port, "--data", filepath.Join(dir, "data"), "--devices", "cpu", "--slots", "4")
	var stderr programtest.Screen
	dev.Dir, dev.Env, dev.Stderr = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir), &stderr
	require.NoError(t, dev.Start())
	defer func() { _ = dev.Process.Kill() }()
	rig.Wait(t, func() bool { return strings.Contains(stderr.String(), "Ctrl-C stops") }, time.Minute, 20*time.Millisecond)
	c, err := client.Dial(client.Options{HostPort: "127.0.0.1:" + port, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer c.Close()

	began := time.Now()
	in := gpumux.MapInput{Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Output: "million/results.jsonl",
		Stages: []gpumux.Stage{{Task: "stages:text"}, {Task: "stages:number"}}}
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "million", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	var summary gpumux.Summary
	ended := make(chan error, 1)
	go func() { ended <- run.Get(t.Context(), &summary) }()
	peak := gpumux.Size(0)
	for over := false; !over; {
		select {
		case err := <-ended:
			require.NoError(t, err)
			over = true
		case <-time.After(time.Second):
			peak = max(peak, stored(t, dir))
		}
	}
	took := time.Since(began)
	require.EqualValues(t, n, summary.Succeeded)
	results, err := os.Open(strings.TrimPrefix(summary.Output, "file://"))
	require.NoError(t, err)
	defer results.Close()
	scanner, index := bufio.NewScanner(results), 0
	for ; scanner.Scan(); index++ {
		require.Equal(t, fmt.Sprintf(`{"index":%d,"value":%d}`, index, 3000+index), scanner.Text())
	}
	require.Equal(t, n, index)
	left := stored(t, dir)
	require.NoError(t, dev.Process.Signal(syscall.SIGTERM))
	require.NoError(t, dev.Wait())
	held := gpumux.Size(dev.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10)
	t.Logf("%d items in %s, %d chunks: the process held at most %s, the disk %s, and %s in the end; %s", n, took.Round(time.Millisecond),
		summary.Chunks, held, peak, left, gpumux.Advice(summary.Stages))
	require.Less(t, held, gpumux.Size(1<<30))
	require.Less(t, left, gpumux.Size(400<<20), "what was between the stages has gone")
}

// stored is what lies in a folder.
func stored(t *testing.T, dir string) (size gpumux.Size) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, gone := entry.Info(); gone == nil {
				size += gpumux.Size(info.Size())
			}
		}
		return nil // what goes meanwhile is not there
	})
	require.NoError(t, err)
	return size
}
