//go:build soak

package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

const millionPy = `
import os
log = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def work(item):
    os.write(log, b"%d\n" % item)
    return item * 3
`

// A million items, and the whole command killed three times on the way: each result is
// there once, and no item that had one ran again.
func TestMillion_SurvivesThreeKills(t *testing.T) {
	const n = 1_000_000
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "million.py"), []byte(millionPy), 0o644))
	var out bytes.Buffer
	begin := func() *exec.Cmd {
		p := exec.Command(programtest.Binary(t), "map", "million.py:work", "--range", fmt.Sprintf("0:%d", n), "--local", "--slots", "2",
			"--id", "million", "--out", "results.jsonl", "--json")
		p.Dir, p.Env, p.Stdout, p.Stderr = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir), &out, os.Stderr
		require.NoError(t, p.Start())
		return p
	}
	// lines are what a file has by now, in whole lines.
	lines := func(name string) []string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // not yet there, perhaps
		return strings.Split(string(text[:bytes.LastIndexByte(text, '\n')+1]), "\n")
	}
	began := time.Now()
	stored, ran := [3]map[string]bool{}, [3]int{} // what had a result before each kill, and how many items had run after it
	for kill := range stored {
		p := begin()
		rig.Wait(t, func() bool { return len(lines(".gpumux-million")) > n*(2*kill+1)/8 }, 5*time.Minute, 100*time.Millisecond)
		stored[kill] = map[string]bool{}
		for _, line := range lines(".gpumux-million") {
			index, _, _ := strings.Cut(strings.TrimPrefix(line, `{"index":`), ",")
			stored[kill][index] = true
		}
		require.NoError(t, p.Process.Signal(syscall.SIGKILL))
		require.Error(t, p.Wait())
		ran[kill] = len(lines("calls")) - 1
		t.Logf("killed after %s with %d items stored", time.Since(began).Round(time.Millisecond), len(stored[kill]))
	}
	p := begin()
	require.NoError(t, p.Wait())
	var summary gpumux.Summary
	require.NoError(t, json.Unmarshal(out.Bytes(), &summary))
	require.EqualValues(t, n, summary.Succeeded)
	results, err := os.Open(filepath.Join(dir, "results.jsonl"))
	require.NoError(t, err)
	defer results.Close()
	scanner, index := bufio.NewScanner(results), 0
	for ; scanner.Scan(); index++ {
		require.Equal(t, fmt.Sprintf(`{"index":%d,"value":%d}`, index, 3*index), scanner.Text())
	}
	require.Equal(t, n, index)
	calls := lines("calls")
	for kill, had := range stored {
		require.False(t, slices.ContainsFunc(calls[ran[kill]:len(calls)-1], func(item string) bool { return had[item] }), "it had a result and ran again")
	}
	held := p.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%d items in %s; %d others ran again; the last command held at most %s", n, time.Since(began).Round(time.Millisecond), len(calls)-1-n,
		gpumux.Size(held))
	require.Less(t, held, int64(1<<30))
}
