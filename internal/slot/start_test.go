package slot_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// Imports of large frameworks that begin at once thrash, so processes start a few at a
// time. An item's timeout does not count the wait.
func TestSlot_AFewProcessesStartAtATime(t *testing.T) {
	t.Parallel()
	limit := max(2, runtime.GOMAXPROCS(0)/2)
	dir := t.TempDir()
	file := filepath.Join(dir, "imports")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(`
import os, time
def note(text):
    with open("imports", "ab", 0) as f: f.write(text)
note(b"(")
time.sleep(0.3)
note(b")")
def square(n): return n * n
`), 0o644))
	var all sync.WaitGroup
	for range 2*limit + 1 {
		s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t)})
		t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
		all.Go(func() {
			got, err := run(t, s, launch.Task{Name: "square", Python: "tasks.py:square", Dir: dir},
				slot.Call{Call: calls.Call{Timeout: 250 * time.Millisecond}, Work: work(7)})
			if err != nil || len(got) != 1 || got[0].Fault != nil {
				t.Errorf("%v %v", err, got)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 2*limit+1, strings.Count(string(text), ")"))
	require.NotContains(t, longest(string(text)), strings.Repeat("(", limit+1), "%s", text)
}

// longest leaves out of nested marks all pairs that were closed, and keeps the deepest
// rest.
func longest(text string) (deepest string) {
	open := ""
	for _, c := range text {
		if c == '(' {
			open += "("
		} else {
			open = open[:len(open)-1]
		}
		if len(open) > len(deepest) {
			deepest = open
		}
	}
	return deepest
}
