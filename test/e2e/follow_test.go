package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
)

// The results of a running map come in order, as far as nothing is missing before them,
// or as they are stored.
func TestFollow_WhileTheMapRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	begin := func(from, to int64, chunk, window int) *starter.Handle {
		m, err := s.starter().Start(t.Context(), starter.Map{Input: gpumux.MapInput{
			Task: "gate", Range: &gpumux.Range{Start: from, End: to}, Ladder: []string{"cpu"}, Chunk: chunk, Window: window}})
		require.NoError(t, err)
		return m
	}
	const n = 500
	m, got, opened := begin(0, n, 25, 2), 0, 0
	for r, err := range m.Results(t.Context(), starter.ReadOptions{}) {
		require.NoError(t, err)
		require.EqualValues(t, got, r.Index)
		got++
		// The next gate opens only when what lies before it has come out: the map cannot have
		// ended before.
		if int(r.Index) == opened*100+50 {
			s.open(opened)
			opened++
		}
	}
	require.Equal(t, n, got)
	again := 0
	for r, err := range m.Results(t.Context(), starter.ReadOptions{Unordered: true}) {
		require.NoError(t, err)
		require.Equal(t, strconv.FormatInt(r.Index, 10), string(r.Value))
		again++
	}
	require.Equal(t, n, again, "a finished map is followed to its end at once")

	seen := map[int64]bool{}
	m = begin(599, 799, 1, 4)
	for r, err := range m.Results(t.Context(), starter.ReadOptions{Unordered: true}) {
		require.NoError(t, err)
		require.False(t, seen[r.Index], "%d came twice", r.Index)
		seen[r.Index] = true
		if len(seen) == 60 {
			require.False(t, seen[0], "item 599 still waits at its gate")
			for gate := 5; gate < 8; gate++ {
				s.open(gate)
			}
		}
	}
	require.Len(t, seen, 200)

	count := 0
	var last error
	m = begin(800, 1000, 10, 2)
	for _, err := range m.Results(t.Context(), starter.ReadOptions{}) {
		if last = err; err != nil {
			break
		}
		if count++; count == 90 {
			require.NoError(t, m.Cancel(t.Context()))
		}
	}
	require.ErrorAs(t, last, new(*starter.EndedError), "it ends with the map's own end")
	require.GreaterOrEqual(t, count, 90)
}

// open lets the items on that wait at a gate.
func (s *site) open(gate int) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(fmt.Sprintf("%s.open%d", s.calls, gate), nil, 0o644))
}

// at makes a shell's commands talk to the workers of a site.
func (s *shell) at(target *site) {
	s.env = append(s.env, "TEMPORAL_ADDRESS="+devservertest.Run(s.t).Address(), "TEMPORAL_NAMESPACE="+target.namespace)
}

// gated is a map of 200 items of which some 90 get a result while its gates are closed,
// and a shell that knows it.
func gated(t *testing.T) (s *site, here *shell, id string) {
	t.Helper()
	s = newSite(t)
	s.worker("cpu", 2)
	here = newShell(t)
	here.at(s)
	p := here.run(0, "map", "gate", "--range", "0:200", "--pool", "cpu", "--option", "chunk=10", "--option", "window=2", "--detach")
	return s, here, strings.TrimSpace(p.stdout.String())
}

func TestResults_FollowOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s, here, id := gated(t)
	require.Contains(t, here.run(2, "results", id).stderr.String(), "--follow gives its results as they come")
	require.Contains(t, here.run(2, "results", id, "--unordered").stderr.String(), "goes with --follow")

	follower := here.begin("results", id, "--follow", "--values")
	rig.Wait(t, func() bool { return strings.Count(follower.stdout.String(), "\n") >= 90 }, time.Minute, 20*time.Millisecond,
		"what has finished is printed although the map waits at its gate")
	require.Less(t, strings.Count(follower.stdout.String(), "\n"), 100)
	partial := here.run(1, "results", id, "--partial", "--values")
	require.GreaterOrEqual(t, strings.Count(partial.stdout.String(), "\n"), 90)
	require.Contains(t, partial.stderr.String(), "map "+id+", running: it has ")
	require.Contains(t, partial.stderr.String(), " of 200 results so far")
	leaver := here.begin("results", id, "--follow")
	rig.Wait(t, func() bool { return strings.Contains(leaver.stdout.String(), `{"index":80,"value":80}`) }, time.Minute, 20*time.Millisecond)
	require.NoError(t, leaver.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, leaver.code())
	require.Contains(t, leaver.stderr.String(), "goes on")

	for i := range 2 {
		s.open(i)
	}
	require.Equal(t, 0, follower.code(), follower.stderr.String())
	require.Equal(t, numbers(200), follower.stdout.String())

	// What a cancelled map has finished is not lost to its user.
	id = strings.TrimSpace(here.run(0, "map", "gate", "--range", "300:500", "--pool", "cpu", "--option", "chunk=10", "--option", "window=2", "--detach").stdout.String())
	rig.Wait(t, func() bool {
		return strings.Count(here.run(1, "results", id, "--partial").stdout.String(), "\n") >= 90
	}, time.Minute, 100*time.Millisecond)
	require.Contains(t, here.run(0, "cancel", id).stderr.String(), "cancelling; `gpumux wait")
	require.Equal(t, 4, here.begin("wait", id).code())
	refused := here.run(4, "results", id)
	require.Empty(t, refused.stdout.String())
	require.Contains(t, refused.stderr.String(), "--partial gives the results that it has")
	p := here.run(1, "results", id, "--partial", "--out", "some.jsonl")
	require.Contains(t, p.stderr.String(), ", canceled: it has ")
	require.Regexp(t, ` (9\d|1\d\d) of 200 results so far`, p.stderr.String())
	require.Regexp(t, `^\{"index":`, here.file("some.jsonl"))
}

// On standard output the results of a map on this machine come while it runs, each once
// and in order; the same command begins with the first again.
func TestFollow_RowsComeDownThePipe(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("step.py", `
import os, time
def wait(i):
    while i == 50 and not os.path.exists(os.path.join(os.path.dirname(__file__), "open")): time.sleep(0.01)
    return i
`)
	words := []string{"map", "step.py:wait", "--range", "0:100", "--local", "--slots", "1", "--out", "-"}
	first := s.begin(words...)
	rows := func(p *program) int { return strings.Count(p.stdout.String(), "\n") }
	rig.Wait(t, func() bool { return rows(first) == 50 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Process.Signal(os.Interrupt))
	require.Equal(t, 130, first.code())

	second := s.begin(words...)
	rig.Wait(t, func() bool { return rows(second) == 50 }, time.Minute, 10*time.Millisecond)
	s.write("open", "")
	require.Zero(t, second.code(), second.stderr.String())
	require.Len(t, s.lines(second.stdout.String()), 100)
}
