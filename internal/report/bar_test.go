package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestBar_Line(t *testing.T) {
	now := noon
	b := &Bar{console: NewConsole(&bytes.Buffer{}), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.PhaseRunning, Items: 10000, Succeeded: 1000, InFlight: 8}
	b.Show(p) // what an earlier run stored does not count for the rate
	now = now.Add(10 * time.Second)
	p.Succeeded, p.Failed = 3950, 50
	var lines []string
	for _, width := range []int{120, 80, 60, 30, 14, 5, 2} {
		line := b.line(p, width)
		require.LessOrEqual(t, len([]rune(line)), width)
		lines = append(lines, line)
	}
	p.Paused = true
	lines = append(lines, b.line(p, 120))
	p.Paused = false
	b.Say("waits for a healthy device")
	require.Contains(t, b.line(p, 120), "  waits for a healthy device  ")
	b.Say("")
	p.Paused, p.Phase, p.Succeeded = false, gpumux.PhaseMerging, 9950
	lines = append(lines, b.line(p, 120), b.line(gpumux.Progress{Task: "embed", Phase: gpumux.PhaseIndexing}, 120))
	golden(t, "bar", strings.Join(lines, "\n")+"\n")
}

// What a map did long ago says little of how long it still takes.
func TestBar_RateIsOfTheLastSeconds(t *testing.T) {
	now := noon
	b := &Bar{console: NewConsole(&bytes.Buffer{}), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.PhaseRunning, Items: 100000}
	run := func(seconds int, perSecond int64) string {
		for range seconds {
			now = now.Add(time.Second)
			p.Succeeded += perSecond
			b.Show(p)
		}
		return "  " + strings.Join(b.parts(p), "  ") + "  "
	}
	b.Show(p)
	require.Contains(t, run(60, 10), "  10.0/s  ")
	require.Contains(t, run(22, 500), "  500/s  ")
	require.Contains(t, run(1000, 1), "  1.0/s  ")
	p.Paused = true
	run(500, 0)
	p.Paused = false
	run(1, 0)
	require.Contains(t, run(5, 100), "  100/s  ", "a pause is no time of work")
	for range 3 { // an item a minute
		run(59, 0)
		run(1, 1)
	}
	require.Contains(t, strings.Join(append(b.parts(p), ""), "  "), "  1.0/min  ")
}

// Of the chunks that run, a map counts no item.
func TestBar_CountsWhatChunksHaveFinished(t *testing.T) {
	var out bytes.Buffer
	now := noon
	b := &Bar{console: NewConsole(&out), now: func() time.Time { return now }}
	p := gpumux.Progress{Phase: gpumux.PhaseRunning, Items: 10, Failed: 1, InFlight: 1}
	b.Show(p)
	b.Finished.Store(b.Counted.Load() + 4)
	now = now.Add(plainEvery)
	b.Show(p)
	require.Equal(t, "50%  5/10  1 failed  7s left  48.0/min  1 in flight\n", out.String())
	b.Written.Add(6)
	now = now.Add(plainEvery)
	b.Show(p)
	require.Contains(t, out.String(), "60%  6/10")
	b.Finished.Store(3) // a chunk that has ended since is in neither number
	p.InFlight, b.shown = 2, noon.Add(-plainIdle)
	b.Show(p)
	require.True(t, strings.HasSuffix(out.String(), "  2 in flight\n") && strings.Count(out.String(), "60%  6/10") == 2, out.String())
	b.Finished.Store(15)
	require.NotPanics(t, func() { b.Show(p); b.line(b.last, 120) })
	require.EqualValues(t, 9, b.last.Succeeded)
}

func TestBar_TellsTheFirstFailure(t *testing.T) {
	var out bytes.Buffer
	b := &Bar{console: NewConsole(&out), now: func() time.Time { return noon }}
	p := gpumux.Progress{Phase: gpumux.PhaseRunning, Items: 10, Succeeded: 1}
	b.Show(p)
	p.Failed = 1
	p.Recent = []gpumux.Result{{Index: 4, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "no", Item: `"x"`}}}
	b.Show(p)
	p.Recent = append(p.Recent, gpumux.Result{Index: 5, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "no"}})
	b.Show(p)
	require.Equal(t, "a first failure: item 4 = \"x\": task_error: no\n", out.String())
}

func TestBar_PlainLines(t *testing.T) {
	now := noon
	var out bytes.Buffer
	b := &Bar{console: NewConsole(&out), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.PhaseRunning, Items: 100, InFlight: 2}
	for range 120 { // a minute, polled twice a second: progress for 20 s, then a standstill
		if now.Sub(noon) < 20*time.Second {
			p.Succeeded++
		}
		b.Show(p)
		now = now.Add(500 * time.Millisecond)
	}
	golden(t, "plain", out.String())
}

func TestConsole_QuietDropsProgressOnly(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.Quiet = true
	NewBar(c).Show(gpumux.Progress{Phase: gpumux.PhaseRunning, Items: 1})
	c.Note("progress")
	require.Empty(t, out.String())
	c.Say("trouble")
	require.Equal(t, "trouble\n", out.String())
}

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "850ms": 850 * time.Millisecond, "12.3s": 12340 * time.Millisecond, "4m05s": 245 * time.Second,
		"3h20m": 200 * time.Minute, "2d4h": 52 * time.Hour,
	} {
		require.Equal(t, want, Span(d))
	}
}
