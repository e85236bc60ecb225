package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

func TestStarter_SameCallAtOnceIsOneMap(t *testing.T) {
	s := newStage(t)
	s.work()
	handles := make([]*starter.Handle, 8)
	var all sync.WaitGroup
	for i := range handles {
		all.Go(func() {
			h, err := s.Start(t.Context(), s.over("gate", 10))
			if err == nil {
				handles[i] = h
			} else {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
	started := 0
	for _, h := range handles {
		require.Equal(t, handles[0].RunID, h.RunID)
		if h.Entry == starter.EntryStarted {
			started++
		} else {
			require.Equal(t, starter.EntryAttached, h.Entry)
		}
	}
	require.Equal(t, 1, started)
	s.allow("open")
	summary, err := s.wait(handles[0])
	require.NoError(t, err)
	require.EqualValues(t, 10, summary.Succeeded)
}

func TestStarter_FinishedRunsAnewWithoutIDAndIsFoundWithOne(t *testing.T) {
	s := newStage(t)
	s.work()
	first, err := s.wait(s.start(s.over("double", 5)))
	require.NoError(t, err)
	again := s.start(s.over("double", 5))
	require.Equal(t, starter.EntryStarted, again.Entry)
	second, err := s.wait(again)
	require.NoError(t, err)
	require.NotEqual(t, first.Output, second.Output)
	require.Len(t, s.calls(), 10)

	m := s.over("double", 5)
	m.ID = "mine"
	_, err = s.wait(s.start(m))
	require.NoError(t, err)
	found := s.start(m)
	require.Equal(t, starter.EntryFound, found.Entry)
	require.Len(t, s.results(found), 5)
	require.Len(t, s.calls(), 15)

	m.Input.Range.End = 6
	_, err = s.Start(t.Context(), m)
	var other *starter.OtherMapError
	require.ErrorAs(t, err, &other)
	require.EqualValues(t, 5, other.Items)
	require.ErrorContains(t, err, "step:double")
}

// A map that was ended halfway goes on, and no finished item runs again.
func TestStarter_ContinuesWhatDidNotComplete(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*stage, *starter.Handle) error{
		"Canceled": func(s *stage, h *starter.Handle) error { return h.Cancel(s.t.Context()) },
		"Terminated": func(s *stage, h *starter.Handle) error {
			return s.Client.TerminateWorkflow(s.t.Context(), h.ID, h.RunID, "test")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.work()
			m := s.over("gate", 12)
			m.Input.Chunk, m.Input.Window = 1, 6 // less than the slots, so that no item waits behind the gate
			h := s.start(m)
			s.until("five items finish", func() bool {
				p, err := h.Progress(t.Context())
				return err == nil && p.Succeeded == 5
			})
			require.NoError(t, end(s, h))
			_, err := s.wait(h)
			var ended *starter.EndedError
			require.ErrorAs(t, err, &ended)
			require.Equal(t, starter.Status(strings.ToLower(name)), ended.Status)
			stored := map[string]bool{}
			for line, err := range h.Lines(t.Context(), starter.ReadOptions{SoFar: true}) {
				require.NoError(t, err)
				stored[string(line)] = true
			}
			require.GreaterOrEqual(t, len(stored), 5)
			for i := range 5 {
				require.Contains(t, stored, fmt.Sprintf(`{"index":%d,"value":%d}`, i, i))
			}
			s.allow("open")
			again := s.start(m)
			require.Equal(t, starter.EntryContinued, again.Entry)
			require.Equal(t, h.ID, again.ID)
			summary, err := s.wait(again)
			require.NoError(t, err)
			require.EqualValues(t, 12, summary.Succeeded)
			require.Len(t, s.results(again), 12)
			seen := map[string]int{}
			for _, item := range s.calls() {
				seen[item]++
			}
			for i := range 5 {
				require.Equal(t, 1, seen[fmt.Sprint(i)], "item %d ran again: %v", i, seen)
			}
		})
	}
}

func TestStarter_RetryRunsFailedItemsOnly(t *testing.T) {
	s := newStage(t)
	s.work()
	h := s.start(s.over("odd", 20))
	summary, err := s.wait(h)
	require.NoError(t, err)
	require.EqualValues(t, 10, summary.Failed)
	require.NotEmpty(t, summary.Output)
	require.Len(t, summary.Results, 20, "few results come in the summary, too")
	require.Len(t, s.calls(), 10)

	s.allow("fixed")
	again, err := s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	require.Equal(t, starter.EntryRetried, again.Entry)
	summary, err = s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 20, summary.Succeeded)
	require.Len(t, s.calls(), 20, "succeeded items ran again")
	for i, r := range s.results(again) {
		require.Equal(t, fmt.Sprint(i), string(r.Value))
	}
	again, err = s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	require.Equal(t, starter.EntryFound, again.Entry, "there is nothing to retry")
}

// Mending the options is what a retry is for, and it is the same map.
func TestStarter_RetryFindsTheMapWhateverItsOptions(t *testing.T) {
	s := newStage(t)
	s.work()
	m := s.over("odd", 20)
	m.Retry = true
	_, err := s.Start(t.Context(), m)
	var none *starter.NothingToRetryError
	require.ErrorAs(t, err, &none)
	m.ID = "named"
	_, err = s.Start(t.Context(), m)
	require.ErrorContains(t, err, "no map named to retry")
	require.Empty(t, s.calls(), "a retry of nothing runs nothing")

	h := s.start(s.over("odd", 20))
	_, err = s.wait(h)
	require.NoError(t, err)
	other := s.start(s.over("double", 20)) // newer, of the same items
	_, err = s.wait(other)
	require.NoError(t, err)
	require.Len(t, s.calls(), 30)
	s.allow("fixed")
	m = s.over("odd", 20)
	m.Retry, m.Input.Attempts, m.Input.Timeout, m.Input.Mode = true, 3, gpumux.Duration(time.Minute), gpumux.ModeFresh
	var again *starter.Handle
	require.Eventually(t, func() bool { // the server lists a map a moment after it has ended
		again, err = s.Start(t.Context(), m)
		return !errors.As(err, &none)
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, starter.EntryRetried, again.Entry)
	require.Equal(t, h.ID, again.ID)
	in, err := again.Input(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{3, gpumux.Duration(time.Minute), gpumux.ModeFresh}, []any{in.Attempts, in.Timeout, in.Mode})
	summary, err := s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 20, summary.Succeeded)
	require.Len(t, s.calls(), 40, "succeeded items ran again")
	again, err = s.Start(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, starter.EntryFound, again.Entry, "there is nothing to retry")
}

func TestStarter_LargeInputGoesThroughTheStore(t *testing.T) {
	s := newStage(t)
	s.work()
	const n = 3000
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "%d\n", i)
	}
	spooled, err := starter.Spool(strings.NewReader(lines.String()), "numbers.jsonl")
	require.NoError(t, err)
	defer spooled.Remove()
	h := s.start(starter.Map{Spooled: spooled, Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}}})
	require.EqualValues(t, n, h.Items)
	_, err = s.wait(h)
	require.NoError(t, err)
	results := s.results(h)
	require.Len(t, results, n)
	for i, r := range results {
		require.Equal(t, fmt.Sprint(2*i), string(r.Value))
	}
	again := s.start(starter.Map{Spooled: spooled, Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}}})
	require.Equal(t, h.ID, again.ID, "the same items make the same ID")
}

func TestStarter_WithoutWorkers(t *testing.T) {
	s := newStage(t)
	rungs, err := fleetOf(s.Starter).Serving(t.Context(), []string{"cpu"})
	require.NoError(t, err)
	require.Len(t, rungs, 2)
	require.False(t, rungs[0].Served())
	_, err = fleetOf(s.Starter).Offer(t.Context())
	var none *fleet.NoWorkerError
	require.ErrorAs(t, err, &none)

	spooled, err := starter.Spool(strings.NewReader(strings.Repeat("1\n", gpumux.InlineItems+1)), "items.jsonl")
	require.NoError(t, err)
	defer spooled.Remove()
	_, err = s.Start(t.Context(), starter.Map{Spooled: spooled, Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}}})
	var noStore *starter.NoStoreError
	require.ErrorAs(t, err, &noStore)
	require.ErrorContains(t, err, "give the workers' store")

	// A small map waits for a worker.
	h := s.start(s.over("double", 3))
	s.work()
	summary, err := s.wait(h)
	require.NoError(t, err)
	require.EqualValues(t, 3, summary.Succeeded)
	rungs, err = fleetOf(s.Starter).Serving(t.Context(), []string{"cpu"})
	require.NoError(t, err)
	require.True(t, rungs[0].Served() && rungs[1].Served())
	offer, err := fleetOf(s.Starter).Offer(t.Context())
	require.NoError(t, err)
	require.Contains(t, offer.Tasks, "step:double")
	require.Equal(t, s.config.Store, offer.Store)
}

func TestStarter_PauseResumeWindowAndProgress(t *testing.T) {
	s := newStage(t)
	s.work()
	m := s.over("gate", 40)
	m.Input.Chunk, m.Input.Window = 1, 6 // less than the slots, so that no item waits behind the gate
	h := s.start(m)
	s.until("five items finish", func() bool { return len(s.calls()) == 5 })
	require.NoError(t, h.Pause(t.Context()))
	p, err := h.Progress(t.Context())
	require.NoError(t, err)
	require.True(t, p.Paused)
	require.NoError(t, h.SetWindow(t.Context(), 3))
	require.Error(t, h.SetWindow(t.Context(), gpumux.MaxWindow+1))
	s.allow("open")
	require.NoError(t, h.Resume(t.Context()))
	var last gpumux.Progress
	summary, err := h.Watch(t.Context(), func(p gpumux.Progress) {
		if p.Succeeded < last.Succeeded {
			t.Errorf("progress went back from %d to %d", last.Succeeded, p.Succeeded)
		}
		last = p
	})
	require.NoError(t, err)
	require.EqualValues(t, 40, summary.Succeeded)
	require.Equal(t, "step:gate", last.Task)
	require.ErrorContains(t, h.Pause(t.Context()), "it has ended")
	require.ErrorContains(t, h.Cancel(t.Context()), "it has ended")
}

func TestStarter_FailedMapsCarryTheirFault(t *testing.T) {
	s := newStage(t)
	s.work()
	_, err := s.wait(s.start(s.over("nothing", 3)))
	var failed *starter.EndedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, gpumux.FaultBadInput, failed.Fault.Kind)
	require.ErrorContains(t, err, "step:double", "the tasks that exist are named")

	m := s.over("odd", 20)
	m.Input.MaxFailures = "0"
	h := s.start(m)
	_, err = s.wait(h)
	require.ErrorAs(t, err, &failed)
	require.Equal(t, gpumux.FaultTaskError, failed.Fault.Kind)
	var fault *gpumux.Fault
	for _, err := range h.Results(t.Context(), starter.ReadOptions{}) {
		if err != nil {
			require.ErrorAs(t, err, &fault)
		}
	}
	require.NotNil(t, fault)
	require.Equal(t, failed.Fault, *fault)
	detail, err := s.Show(t.Context(), h.ID)
	require.NoError(t, err)
	require.Equal(t, starter.StatusFailed, detail.Status)
	require.Equal(t, gpumux.FaultTaskError, detail.Fault.Kind)
}

func TestStarter_ListAndShow(t *testing.T) {
	s := newStage(t)
	s.work()
	done := s.start(s.over("odd", 4))
	_, err := s.wait(done)
	require.NoError(t, err)
	m := s.over("gate", 9)
	m.Input.Chunk, m.Input.Window = 1, 6 // less than the slots, so that no item waits behind the gate
	running := s.start(m)
	s.until("both maps are listed with their counts", func() bool {
		maps, err := s.List(t.Context(), starter.ListOptions{Counts: true})
		return err == nil && len(maps) == 2 && maps[0].ID == running.ID && maps[0].Status == starter.StatusRunning &&
			maps[0].Succeeded == 5 && maps[1].Status == starter.StatusCompleted && maps[1].Failed == 2
	})
	maps, err := s.List(t.Context(), starter.ListOptions{Running: true})
	require.NoError(t, err)
	require.Len(t, maps, 1)

	s.until("chunks in flight are shown", func() bool {
		d, err := s.Show(t.Context(), running.ID)
		return err == nil && d.Progress != nil && d.Succeeded == 5 && len(d.Pending) == 4 && d.Rungs[1].Served()
	})
	d, err := s.Show(t.Context(), done.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Summary.Failed)
	s.until("a map that does not exist is told from those that do", func() bool {
		_, err := s.Show(t.Context(), "nope")
		var missing *starter.NotFoundError
		return errors.As(err, &missing) && slices.Contains(missing.Known, done.ID)
	})
	s.allow("open")
	_, err = s.wait(running)
	require.NoError(t, err)
}

func TestStarter_BadInputCostsNothing(t *testing.T) {
	s := newStage(t)
	_, err := s.Start(t.Context(), starter.Map{Input: gpumux.MapInput{Task: " ", Ladder: []string{"No"}, Items: []json.RawMessage{}}})
	var bad *gpumux.InputError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Problems, 2)
	maps, err := s.List(t.Context(), starter.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, maps)
}

// A map that somebody started by name has no folder of package starter's, but the output
// that its input names: there a retry goes on.
func TestStarter_RetryOfAMapByNameGoesOnUnderItsOutput(t *testing.T) {
	s := newStage(t)
	s.work()
	in := s.over("gate", 12).Input
	in.Chunk, in.Window, in.Output = 1, 6, "named.jsonl"
	run, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "by-name", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	h, err := s.Open(t.Context(), run.GetID())
	require.NoError(t, err)
	require.True(t, h.Running())
	require.EqualValues(t, 12, h.Items)
	require.Equal(t, "step:gate", h.Task)
	s.until("five items finish", func() bool {
		p, err := h.Progress(t.Context())
		return err == nil && p.Succeeded == 5
	})
	require.NoError(t, h.Cancel(t.Context()))
	_, err = s.wait(h)
	require.EqualError(t, err, "map by-name was cancelled")
	s.allow("open")
	again, err := s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	summary, err := s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 12, summary.Succeeded)
	require.True(t, strings.HasSuffix(summary.Output, "/named.jsonl"), summary.Output)
	seen := map[string]int{}
	for _, item := range s.calls() {
		seen[item]++
	}
	for i := range 5 {
		require.Equal(t, 1, seen[fmt.Sprint(i)], "item %d ran again: %v", i, seen)
	}
}
