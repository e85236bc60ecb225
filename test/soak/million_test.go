//go:build soak

package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
	"github.com/gpumux/gpumux/test/programtest"
)

const millionPy = `
import os
log = os.open(os.path.join(os.path.dirname(__file__), "calls"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def work(item):
    os.write(log, b"%d\n" % item)
    return item * 3
`

// items is 1,000,000, or what GPUMUX_SOAK_ITEMS says.
func items(t *testing.T) int64 {
	text := os.Getenv("GPUMUX_SOAK_ITEMS")
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// command is `gpumux map --local` over the numbers 0 to n-1, whose state outlives it.
type command struct {
	t      *testing.T
	binary string
	dir    string
	n      int64
	peak   int64 // the most memory of the command itself, in bytes
	beside int64 // the same of its largest task process
}

func (c *command) start() *exec.Cmd {
	c.t.Helper()
	p := exec.Command(c.binary, "map", "million.py:work", "--range", fmt.Sprintf("0:%d", c.n), "--local", "--slots", "2",
		"--id", "million", "--out", "results.jsonl", "--reduce", "builtins:sum", "--json")
	p.Dir, p.Env = c.dir, append(os.Environ(), "HOME="+c.dir, "XDG_STATE_HOME="+filepath.Join(c.dir, "state"))
	p.Stderr = os.Stderr
	return p
}

// measure notes what the command and its children hold at most.
func (c *command) measure(pid int) {
	c.peak = max(c.peak, held(pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		children, _ := os.ReadFile(thread) // gone by now, perhaps
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				c.beside = max(c.beside, held(pid))
			}
		}
	}
}

// held is a process's VmHWM in bytes, 0 when it is gone.
func held(pid int) int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

// stored are the items that have a result in the store.
func (c *command) stored() contract.Runs {
	folders, err := filepath.Glob(filepath.Join(c.dir, "state/gpumux/local/million/store/maps/*/*/*.parts"))
	require.NoError(c.t, err)
	if len(folders) == 0 {
		return nil
	}
	require.Len(c.t, folders, 1)
	root := filepath.Join(c.dir, "state/gpumux/local/million/store")
	s, err := store.Open(c.t.Context(), "file://"+root)
	require.NoError(c.t, err)
	defer s.Close()
	key, err := filepath.Rel(root, folders[0])
	require.NoError(c.t, err)
	spans := storetest.Runs(c.t, s, key)
	return spans
}

// parts are the names of what the store holds.
func (c *command) parts() (names []string) {
	found, err := filepath.Glob(filepath.Join(c.dir, "state/gpumux/local/million/store/maps/*/*/*.parts/*"))
	require.NoError(c.t, err)
	for _, file := range found {
		names = append(names, filepath.Base(file))
	}
	return names
}

func count(spans []contract.Span) (n int64) {
	for _, s := range spans {
		n += s.End - s.Start
	}
	return n
}

// A million items, and the whole command killed three times on the way.
func TestMillion_SurvivesThreeKills(t *testing.T) {
	dir := t.TempDir()
	binary := programtest.Binary(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "million.py"), []byte(millionPy), 0o644))

	// What the command holds for a small map is the embedded server's.
	base := &command{t: t, binary: binary, dir: t.TempDir(), n: 1000}
	require.NoError(t, os.WriteFile(filepath.Join(base.dir, "million.py"), []byte(millionPy), 0o644))
	base.toEnd()

	c := &command{t: t, binary: binary, dir: dir, n: items(t)}
	// stands is the number of the kill at which an item had a result, from 1; ends is where
	// the tasks' log was then.
	stands, ends := make([]uint8, c.n), []int64{}
	began := time.Now()
	for kill := range int64(3) {
		p := c.start()
		require.NoError(t, p.Start())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = p.Wait() }()
		until := c.n * (2*kill + 1) / 8
		for {
			select {
			case <-ended:
				t.Fatalf("the map ended before it could be killed: %v", p.ProcessState)
			case <-time.After(100 * time.Millisecond):
			}
			c.measure(p.Process.Pid)
			if count(c.stored()) > until {
				break
			}
		}
		finished := c.stored() // before the kill, so that all of it must stand
		require.NoError(t, p.Process.Signal(syscall.SIGKILL))
		<-ended
		for _, span := range finished {
			for i := span.Start; i < span.End; i++ {
				if stands[i] == 0 {
					stands[i] = uint8(kill) + 1
				}
			}
		}
		info, err := os.Stat(filepath.Join(dir, "calls"))
		require.NoError(t, err)
		ends = append(ends, info.Size())
		t.Logf("killed after %s with %d items stored", time.Since(began).Round(time.Millisecond), count(finished))
	}
	summary := c.toEnd()
	took := time.Since(began)
	require.Equal(t, c.n, summary.Succeeded)
	require.Equal(t, strconv.FormatInt(3*c.n*(c.n-1)/2, 10), string(summary.Reduced))

	results, err := os.Open(filepath.Join(dir, "results.jsonl"))
	require.NoError(t, err)
	defer results.Close()
	lines, index := bufio.NewScanner(results), int64(0)
	for ; lines.Scan(); index++ {
		require.Equal(t, fmt.Sprintf(`{"index":%d,"value":%d}`, index, 3*index), lines.Text())
	}
	require.NoError(t, lines.Err())
	require.Equal(t, c.n, index)

	calls, err := os.Open(filepath.Join(dir, "calls"))
	require.NoError(t, err)
	defer calls.Close()
	at, all, again := int64(0), int64(0), []int64{}
	for lines := bufio.NewScanner(calls); lines.Scan(); all++ {
		i, err := strconv.ParseInt(lines.Text(), 10, 64)
		require.NoError(t, err)
		if kill := stands[i]; kill > 0 && at >= ends[kill-1] {
			again = append(again, i)
		}
		at += int64(len(lines.Text())) + 1
	}
	require.Empty(t, again, "these items had a result and ran again; the parts are %v", c.parts())
	t.Logf("%d items in %s with three kills (%.0f/s); none that had a result ran again, %d others did",
		c.n, took.Round(time.Millisecond), float64(c.n)/took.Seconds(), all-c.n)
	t.Logf("memory: the command %s, of which %s are the embedded server's; the largest task process %s",
		gpumux.Size(c.peak), gpumux.Size(base.peak), gpumux.Size(c.beside))
	require.Less(t, c.peak-base.peak, int64(256<<20))
	require.NotZero(t, c.beside)
	require.Less(t, c.beside, int64(256<<20))
}

// toEnd runs the command to its end.
func (c *command) toEnd() gpumux.Summary {
	c.t.Helper()
	p := c.start()
	out, err := p.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, p.Start())
	ended := make(chan struct{})
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		for {
			c.measure(p.Process.Pid)
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	var summary gpumux.Summary
	err = json.NewDecoder(out).Decode(&summary)
	close(ended)
	<-measured
	require.NoError(c.t, p.Wait())
	require.NoError(c.t, err)
	return summary
}
