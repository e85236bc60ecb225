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

// The results of a running map come in order, as far as nothing is missing before them.
func TestFollow_WhileTheMapRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hand()
	s.serve(h.config(2))
	st := s.starter()
	const n = 500
	m, err := st.Start(t.Context(), starter.Map{Input: gpumux.MapInput{
		Task: "gate", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Chunk: 25, Window: 2}})
	require.NoError(t, err)
	open := func(i int) { require.NoError(t, os.WriteFile(fmt.Sprintf("%s.open%d", s.calls, i), nil, 0o644)) }
	var got []int64
	opened := 0
	for r, err := range m.Results(t.Context(), starter.ReadOptions{}) {
		require.NoError(t, err)
		got = append(got, r.Index)
		require.EqualValues(t, len(got)-1, r.Index)
		// The next gate opens only when what lies before it has come out: the map cannot have
		// ended before.
		if int(r.Index) == opened*100+50 {
			open(opened)
			opened++
		}
	}
	require.Len(t, got, n)
	again := 0
	for r, err := range m.Results(t.Context(), starter.ReadOptions{Unordered: true}) {
		require.NoError(t, err)
		require.Equal(t, strconv.FormatInt(r.Index, 10), string(r.Value))
		again++
	}
	require.Equal(t, n, again, "a finished map is followed to its end at once")
}

func TestFollow_UnorderedDoesNotWaitForTheFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hand()
	s.serve(h.config(2))
	m, err := s.starter().Start(t.Context(), starter.Map{Input: gpumux.MapInput{
		Task: "gate", Range: &gpumux.Range{Start: 99, End: 299}, Ladder: []string{"cpu"}, Chunk: 1, Window: 4}})
	require.NoError(t, err)
	seen := map[int64]bool{}
	for r, err := range m.Results(t.Context(), starter.ReadOptions{Unordered: true}) {
		require.NoError(t, err)
		require.False(t, seen[r.Index], "%d came twice", r.Index)
		seen[r.Index] = true
		if len(seen) == 60 {
			require.False(t, seen[0], "item 99 still waits at its gate")
			for i := range 3 {
				require.NoError(t, os.WriteFile(fmt.Sprintf("%s.open%d", s.calls, i), nil, 0o644))
			}
		}
	}
	require.Len(t, seen, 200)
}

func TestFollow_EndsWithTheMapsOwnEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hand()
	s.serve(h.config(2))
	st := s.starter()
	small, err := st.Start(t.Context(), starter.Map{Input: gpumux.MapInput{Task: "echo", Range: &gpumux.Range{End: 7}, Ladder: []string{"cpu"}}})
	require.NoError(t, err)
	count := 0
	for _, err := range small.Results(t.Context(), starter.ReadOptions{}) {
		require.NoError(t, err)
		count++
	}
	require.Equal(t, 7, count)

	m, err := st.Start(t.Context(), starter.Map{Input: gpumux.MapInput{Task: "gate", Range: &gpumux.Range{End: 200}, Ladder: []string{"cpu"}, Chunk: 10, Window: 2}})
	require.NoError(t, err)
	count = 0
	var last error
	for _, err := range m.Results(t.Context(), starter.ReadOptions{}) {
		if last = err; err != nil {
			break
		}
		if count++; count == 90 {
			require.NoError(t, m.Cancel(t.Context()))
		}
	}
	var canceled *starter.EndedError
	require.ErrorAs(t, last, &canceled)
	require.GreaterOrEqual(t, count, 90)
}

// at makes a shell's commands talk to the workers of a site.
func (s *shell) at(there *site) {
	s.env = append(s.env, "TEMPORAL_ADDRESS="+devservertest.Run(s.t).Address(), "TEMPORAL_NAMESPACE="+there.namespace)
}

// gated is a map of 200 items of which some 90 get a result while its gates are closed,
// and a shell that knows it.
func gated(t *testing.T) (s *site, here *shell, id string) {
	t.Helper()
	s = newSite(t)
	h := s.hand()
	s.serve(h.config(2))
	here = newShell(t)
	here.at(s)
	p := here.run(0, "map", "gate", "--range", "0:200", "--pool", "cpu", "--chunk", "10", "--window", "2", "--detach")
	return s, here, strings.TrimSpace(p.stdout.String())
}

func TestResults_FollowOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s, here, id := gated(t)
	require.Contains(t, here.run(2, "results", id).stderr.String(), "--follow gives its results as they come")
	require.Contains(t, here.run(2, "results", id, "--unordered").stderr.String(), "goes with --follow")

	follower := here.begin("results", id, "--follow", "--values")
	require.Eventually(t, func() bool { return strings.Count(follower.stdout.String(), "\n") >= 90 }, time.Minute, 20*time.Millisecond,
		"what has finished is printed although the map waits at its gate")
	require.Less(t, strings.Count(follower.stdout.String(), "\n"), 100)
	partial := here.run(1, "results", id, "--partial", "--values")
	require.GreaterOrEqual(t, strings.Count(partial.stdout.String(), "\n"), 90)
	require.Contains(t, partial.stderr.String(), "map "+id+", running: it has ")
	require.Contains(t, partial.stderr.String(), " of 200 results so far")
	leaver := here.begin("results", id, "--follow")
	require.Eventually(t, func() bool { return strings.Contains(leaver.stdout.String(), `{"index":80,"value":80}`) }, time.Minute, 20*time.Millisecond)
	require.NoError(t, leaver.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, leaver.code())
	require.Contains(t, leaver.stderr.String(), "goes on")

	for i := range 2 {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s.open%d", s.calls, i), nil, 0o644))
	}
	require.Equal(t, 0, follower.code(), follower.stderr.String())
	require.Equal(t, numbers(200), follower.stdout.String())
}

// What a cancelled map has finished is not lost to its user.
func TestResults_OfACancelledMap(t *testing.T) {
	t.Parallel()
	_, here, id := gated(t)
	rig.Wait(t, func() bool {
		return strings.Count(here.run(1, "results", id, "--partial").stdout.String(), "\n") >= 90
	}, time.Minute, 100*time.Millisecond)
	completed := here.run(0, "__complete", "cancel", "").stdout.String()
	require.Contains(t, completed, id+"\n")
	require.Contains(t, here.run(0, "__complete", "map", "").stdout.String(), "gate\n")
	require.Contains(t, here.run(0, "cancel", id).stderr.String(), "cancelling; `gpumux wait")
	require.Equal(t, 4, here.begin("wait", id).code())
	refused := here.run(4, "results", id)
	require.Empty(t, refused.stdout.String())
	require.Contains(t, refused.stderr.String(), "--partial gives the results that it has")
	p := here.run(1, "results", id, "--partial", "--out", "some.jsonl.gz")
	require.Contains(t, p.stderr.String(), ", canceled: it has ")
	require.Regexp(t, ` (9\d|1\d\d) of 200 results so far`, p.stderr.String())
	require.Equal(t, "\x1f\x8b", here.file("some.jsonl.gz")[:2])
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
