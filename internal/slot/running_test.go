package slot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

const steps = `
import gpumux, os, time
def step(x):
    print("step", x)
    if x == 0: return x
    gpumux.progress({"item": x, "text": "é" * (10 if x == 2 else 500)})
    while not os.path.exists(f"open{x}"): time.sleep(0.01)
    return x
`

// A slot says which item it runs, since when, and what the item reported last.
func TestSlot_SaysWhatRuns(t *testing.T) {
	s, dir := newSlot(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "steps.py"), []byte(steps), 0o644))
	require.Nil(t, s.Stats().Running)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(t.Context(), launch.Task{Name: "step", Python: "steps.py:step", Dir: dir}, calls.Call{Items: values(0, 0, 2, 3),
			Done: func(calls.Done) {}})
	}()
	for _, index := range []int64{2, 3} {
		var running slot.Running
		require.Eventually(t, func() bool {
			if r := s.Stats().Running; r != nil {
				running = *r
			}
			return running.Index == index && running.Progress != ""
		}, time.Minute, time.Millisecond)
		text, next := running.Out.Since(0)
		require.Equal(t, fmt.Sprintf("step %d\n", index), text, "what is not of a result yet is the running item's")
		text, _ = running.Out.Since(next)
		require.Empty(t, text)
		require.WithinRange(t, running.Began, time.Now().Add(-time.Minute), time.Now())
		if index == 2 {
			require.Equal(t, `{"item":2,"text":"éééééééééé"}`, running.Progress)
		} else {
			require.True(t, strings.HasPrefix(running.Progress, `{"item":3`) && strings.HasSuffix(running.Progress, "é…"), running.Progress)
			require.LessOrEqual(t, len(running.Progress), 200)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "open"+string(rune('0'+index))), nil, 0o644))
	}
	require.NoError(t, <-ended)
	require.Nil(t, s.Stats().Running)
}

// A command is an item of its own.
func TestSlot_SaysWhichCommandRuns(t *testing.T) {
	s, open := newSlot(t), filepath.Join(t.TempDir(), "open")
	task := launch.Task{Name: "wait", Command: []string{"sh", "-c", `while [ ! -e "$1" ]; do sleep 0.01; done; echo 1`, "sh", open}, Dir: t.TempDir()}
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(t.Context(), task, calls.Call{Items: values(nil), Done: func(calls.Done) {}})
	}()
	require.Eventually(t, func() bool { r := s.Stats().Running; return r != nil && r.Index == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, os.WriteFile(open, nil, 0o644))
	require.NoError(t, <-ended)
	require.Nil(t, s.Stats().Running)
}
