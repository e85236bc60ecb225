package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestStarter_Kinds has what a program does with package starter, one after the other on
// the same worker.
func TestStarter_Kinds(t *testing.T) {
	s := newStage(t)
	s.write("bad.py", badPy)
	s.write("shared.py", sharedPy)
	s.write("words.py", "def count(text):\n    return len(text.split())\n")
	for _, c := range []struct {
		name string
		test func(*stage)
	}{
		{"WithoutWorkers", withoutWorkers}, // which starts the worker of the others
		{"ListAndShow", listAndShow}, {"SameCallAtOnceIsOneMap", sameCall}, {"FinishedRunsAnewWithoutIDAndIsFoundWithOne", finished},
		{"Terminated", terminated}, {"AMapByNameGoesOnUnderItsOutput", byName}, {"RetryRunsFailedItems", retries},
		{"RetryFindsTheMapWhateverItsOptions", retryWithOptions}, {"PauseResumeAndProgress", steered}, {"FailedMapsCarryTheirFault", failedMaps},
		{"FaultsNameTheirItem", namedItems}, {"AnArgumentOfMegabytes", largeArgument}, {"TheValuesOfAMap", valuesOfMap}, {"ASchedule", schedule},
		{"AServerWithoutStandaloneActivities", olderServer},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.forget()
			c.test(&sub)
			s.logged = sub.logged
		})
	}
}

func withoutWorkers(s *stage) {
	t := s.t
	rungs, err := fleetOf(s.Starter).Serving(t.Context(), []string{"cpu"})
	require.NoError(t, err)
	require.Len(t, rungs, 2)
	require.False(t, rungs[0].Served())
	_, err = fleetOf(s.Starter).Offer(t.Context())
	require.ErrorAs(t, err, new(*fleet.NoWorkerError))

	spooled, err := starter.Spool(strings.NewReader(strings.Repeat("1\n", gpumux.InlineItems+1)), "items.jsonl")
	require.NoError(t, err)
	defer spooled.Remove()
	_, err = s.Start(t.Context(), starter.Map{Spooled: spooled, Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}}})
	require.ErrorAs(t, err, new(*starter.NoStoreError))
	require.ErrorContains(t, err, "give the workers' store")
	_, err = s.Start(t.Context(), starter.Map{Input: gpumux.MapInput{Task: " ", Ladder: []string{"No"}, Items: []json.RawMessage{}}})
	var bad *gpumux.InputError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Problems, 2)
	maps, err := s.List(t.Context(), starter.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, maps, "neither was started")

	// A small map waits for a worker.
	h := s.start(s.over("double", 3))
	workers := *s
	workers.t = s.site.t // it outlives this test
	workers.work()
	s.logged = workers.logged
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

// gated is a map whose first five items finish; the others wait for the file open.
func (s *stage) gated(n int64) starter.Map {
	m := s.over("gate", n)
	m.Input.Chunk, m.Input.Window = 1, 6 // less than the slots, so that no item waits behind the gate
	return m
}

// fiveFinish waits for what a gated map can do.
func (s *stage) fiveFinish(h *starter.Handle) {
	s.t.Helper()
	s.until("five items finish", func() bool {
		p, err := h.Progress(s.t.Context())
		return err == nil && p.Succeeded == 5
	})
}

func listAndShow(s *stage) {
	t := s.t
	done, _ := s.done(s.over("odd", 4))
	running := s.start(s.gated(9))
	s.until("both maps are listed with their counts", func() bool {
		maps, err := s.List(t.Context(), starter.ListOptions{Counts: true})
		return err == nil && len(maps) == 3 && maps[0].ID == running.ID && maps[0].Status == starter.StatusRunning &&
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
	s.write("open", "")
	_, err = s.wait(running)
	require.NoError(t, err)
}

func sameCall(s *stage) {
	handles := make([]*starter.Handle, 8)
	var all sync.WaitGroup
	for i := range handles {
		all.Go(func() {
			h, err := s.Start(s.t.Context(), s.over("gate", 10))
			if err == nil {
				handles[i] = h
			} else {
				s.t.Error(err)
			}
		})
	}
	all.Wait()
	require.False(s.t, s.t.Failed())
	started := 0
	for _, h := range handles {
		require.Equal(s.t, handles[0].RunID, h.RunID)
		if h.Entry == starter.EntryStarted {
			started++
		} else {
			require.Equal(s.t, starter.EntryAttached, h.Entry)
		}
	}
	require.Equal(s.t, 1, started)
	s.write("open", "")
	summary, err := s.wait(handles[0])
	require.NoError(s.t, err)
	require.EqualValues(s.t, 10, summary.Succeeded)
}

func finished(s *stage) {
	_, first := s.done(s.over("double", 5))
	again, second := s.done(s.over("double", 5))
	require.Equal(s.t, starter.EntryStarted, again.Entry)
	require.NotEqual(s.t, first.Output, second.Output)
	require.Len(s.t, s.calls(), 10)

	m := s.over("double", 5)
	m.ID = "mine"
	s.done(m)
	found := s.start(m)
	require.Equal(s.t, starter.EntryFound, found.Entry)
	require.Len(s.t, s.results(found), 5)
	require.Len(s.t, s.calls(), 15)

	m.Input.Range.End = 6
	_, err := s.Start(s.t.Context(), m)
	require.ErrorAs(s.t, err, new(*starter.RefusedError))
	require.ErrorContains(s.t, err, "step:double over 5 items")
}

func terminated(s *stage) {
	goesOn(s, starter.StatusTerminated, func(h *starter.Handle) error {
		return s.Client.TerminateWorkflow(s.t.Context(), h.ID, h.RunID, "test")
	})
}

// goesOn ends a map halfway. Started again it goes on, and no finished item runs again.
func goesOn(s *stage, status starter.Status, end func(h *starter.Handle) error) {
	t := s.t
	m := s.gated(12)
	m.ID = "ended-" + string(status)
	h := s.start(m)
	s.fiveFinish(h)
	require.NoError(t, end(h))
	_, err := s.wait(h)
	var ended *starter.EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, status, ended.Status)
	stored := map[string]bool{}
	for line, err := range h.Lines(t.Context(), starter.ReadOptions{SoFar: true}) {
		require.NoError(t, err)
		stored[string(line)] = true
	}
	require.GreaterOrEqual(t, len(stored), 5)
	for i := range 5 {
		require.Contains(t, stored, fmt.Sprintf(`{"index":%d,"value":%d}`, i, i))
	}
	s.write("open", "")
	again, summary := s.done(m)
	require.Equal(t, starter.EntryContinued, again.Entry)
	require.Equal(t, h.ID, again.ID)
	require.EqualValues(t, 12, summary.Succeeded)
	require.Len(t, s.results(again), 12)
	s.onceEach(5)
}

// onceEach checks that none of the first items ran again.
func (s *stage) onceEach(first int) {
	s.t.Helper()
	seen := map[string]int{}
	for _, item := range s.calls() {
		seen[item]++
	}
	for i := range first {
		require.Equal(s.t, 1, seen[fmt.Sprint(i)], "item %d ran again: %v", i, seen)
	}
}

// A map that somebody started by name has no folder of package starter's, but the output
// that its input names: there a retry goes on.
func byName(s *stage) {
	t := s.t
	in := s.gated(12).Input
	in.Output = "named.jsonl"
	run, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "by-name", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	h, err := s.Open(t.Context(), run.GetID())
	require.NoError(t, err)
	require.True(t, h.Running())
	require.EqualValues(t, 12, h.Items)
	require.Equal(t, "step:gate", h.Task)
	s.fiveFinish(h)
	require.NoError(t, h.Cancel(t.Context()))
	_, err = s.wait(h)
	require.EqualError(t, err, "map by-name was cancelled")
	s.write("open", "")
	again, err := s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	summary, err := s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 12, summary.Succeeded)
	require.True(t, strings.HasSuffix(summary.Output, "/named.jsonl"), summary.Output)
	s.onceEach(5)
}

func retries(s *stage) {
	t := s.t
	h, summary := s.done(s.over("odd", 20))
	require.EqualValues(t, 10, summary.Failed)
	require.NotEmpty(t, summary.Output)
	require.Len(t, summary.Results, 20, "few results come in the summary, too")
	require.Len(t, s.calls(), 10)

	s.write("fixed", "")
	again, err := s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	require.Equal(t, starter.EntryRetried, again.Entry)
	summary, err = s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 20, summary.Succeeded)
	require.Len(t, s.calls(), 20, "succeeded items ran again")
	for i, value := range s.values(again) {
		require.Equal(t, fmt.Sprint(i), value)
	}
	again, err = s.Retry(t.Context(), h.ID, nil)
	require.NoError(t, err)
	require.Equal(t, starter.EntryFound, again.Entry, "there is nothing to retry")
}

// Mending the options is what a retry is for, and it is the same map.
func retryWithOptions(s *stage) {
	t := s.t
	over := func() starter.Map { return s.over("odd", 21) } // no other test has these items
	m := over()
	m.Retry = true
	_, err := s.Start(t.Context(), m)
	require.ErrorAs(t, err, new(*starter.RefusedError))
	m.ID = "named"
	_, err = s.Start(t.Context(), m)
	require.ErrorContains(t, err, "no map named to retry")
	require.Empty(t, s.calls(), "a retry of nothing runs nothing")

	h, _ := s.done(over())
	s.done(s.over("double", 21)) // newer, of the same items
	require.Len(t, s.calls(), 32)
	s.write("fixed", "")
	m = over()
	m.Retry, m.Input.Attempts, m.Input.Timeout, m.Input.Mode = true, 3, gpumux.Duration(time.Minute), gpumux.ModeFresh
	var again *starter.Handle
	s.until("the server lists the map", func() bool {
		again, err = s.Start(t.Context(), m)
		return !errors.As(err, new(*starter.RefusedError))
	})
	require.NoError(t, err)
	require.Equal(t, starter.EntryRetried, again.Entry)
	require.Equal(t, h.ID, again.ID)
	in, err := again.Input(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{3, gpumux.Duration(time.Minute), gpumux.ModeFresh}, []any{in.Attempts, in.Timeout, in.Mode})
	summary, err := s.wait(again)
	require.NoError(t, err)
	require.EqualValues(t, 21, summary.Succeeded)
	require.Len(t, s.calls(), 42, "succeeded items ran again")
}

func steered(s *stage) {
	t := s.t
	h := s.start(s.gated(40))
	s.fiveFinish(h)
	require.NoError(t, h.Pause(t.Context()))
	p, err := h.Progress(t.Context())
	require.NoError(t, err)
	require.True(t, p.Paused)
	s.write("open", "")
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

func failedMaps(s *stage) {
	t := s.t
	_, err := s.wait(s.start(s.over("nothing", 3)))
	var failed *starter.EndedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, gpumux.FaultBadInput, failed.Fault.Kind)
	require.ErrorContains(t, err, "step:double", "the tasks that exist are named")

	m := s.over("odd", 22)
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

const badPy = `
import os, time
def bad(item):
    if item["how"] == "raise": raise ValueError("no")
    if item["how"] == "die": os._exit(3)
    if item["how"] == "hang": time.sleep(1000)
    return 1
`

// Whoever reads of a failure sees which item it was: in the map's error, in the results
// and in the worker's log, there once.
func namedItems(s *stage) {
	t := s.t
	over := func(id string, hows ...string) starter.Map {
		m := starter.Map{ID: id, Input: gpumux.MapInput{Task: "bad:bad", Ladder: []string{"cpu"}, Timeout: gpumux.Duration(2 * time.Second)}}
		for _, how := range hows {
			m.Input.Items = append(m.Input.Items, json.RawMessage(`{"how":"`+how+`"}`))
		}
		return m
	}
	fast := over("fast", "fine", "raise")
	fast.Input.MaxFailures = "0"
	_, err := s.start(fast).Wait(t.Context())
	var failed *starter.EndedError
	require.ErrorAs(t, err, &failed)
	require.EqualValues(t, 1, *failed.Fault.Index)
	require.ErrorContains(t, err, `map fast failed at item 1 = {"how":"raise"}: task_error`)

	hows := []string{"fine", "raise", "die", "hang", "fine"}
	h, _ := s.done(over("all", hows...))
	results := s.results(h)
	for i, how := range hows {
		if how == "fine" {
			require.Nil(t, results[i].Fault)
			continue
		}
		require.Equal(t, `{"how":"`+how+`"}`, results[i].Fault.Item)
		require.Nil(t, results[i].Fault.Index, "the result has it")
	}
	require.Contains(t, results[3].Fault.Traceback, `in bad`, "where it hangs")

	lines, processes := map[int64][]string{}, map[any]bool{}
	for _, line := range s.logged.All() {
		require.NotContains(t, line.Message, "task process failed", "a second line about the same fault")
		fields := line.ContextMap()
		if fields["map"] != "all" {
			continue
		}
		index := fields["index"].(int64)
		require.Equal(t, results[index].Fault.Item, fields["item"])
		lines[index] = append(lines[index], line.Message)
		if index > 1 {
			processes[fields["pid"]] = true
		}
	}
	require.Len(t, lines, 3)
	require.Equal(t, []string{"item failed"}, lines[1])
	for _, dead := range []int64{2, 3} { // it ends a process beside others, then alone: each of these is a fault of its own
		last := len(lines[dead]) - 1
		require.Equal(t, "item ended its process; it is recorded as failed", lines[dead][last])
		for _, earlier := range lines[dead][:last] {
			require.Contains(t, earlier, "item ended its process; it is tried again")
		}
	}
	require.Len(t, processes, len(lines[2])+len(lines[3]), "each death is logged once")
}

const sharedPy = `
import gpumux, os

def size(x):
    if x == 1 and not os.path.exists("fixed"): raise ValueError("not yet")
    return len(gpumux.arg()["text"]) + x
def opened(x):
    with open(os.environ["GPUMUX_ARG_FILE"], "rb") as file:
        return [file.name, file.read().decode("latin-1")]
`

// A large argument goes through the store to every process, and is no part of a history.
func largeArgument(s *stage) {
	t := s.t
	m := s.over("", 3)
	m.Input.Task, m.ID = "shared:size", "large"
	m.Input.Arg = json.RawMessage("{ \"text\":\n\"" + strings.Repeat("x", 3<<20) + `"}`)
	h, summary := s.done(m)
	require.EqualValues(t, 1, summary.Failed)
	in, err := h.Input(t.Context())
	require.NoError(t, err)
	require.Nil(t, in.Arg)
	require.FileExists(t, filepath.Join(s.dir, "store", in.ArgFile[strings.LastIndex(in.ArgFile, "sources/"):]))
	s.write("fixed", "")
	m.Retry = true
	h, _ = s.done(m)
	require.Equal(t, []string{"3145728", "3145729", "3145730"}, s.values(h))

	for name, c := range map[string]struct{ content, says string }{
		"none.json": {"", "argFile: "}, "text.json": {"text", "is not JSON"}, "large.json": {`"` + strings.Repeat("x", gpumux.MaxArgFile) + `"`, "more than 16MiB"},
	} {
		if c.content != "" {
			s.write("store/"+name, c.content)
		}
		m := s.over("", 3)
		m.Input.Task, m.Input.ArgFile = "shared:size", name
		_, err := s.wait(s.start(m))
		var fault *gpumux.Fault
		require.ErrorAs(t, err, &fault, name)
		require.Equal(t, gpumux.FaultBadInput, fault.Kind, name)
		require.Contains(t, fault.Message, c.says)
	}
	// One with arrays, which the client in Python wrote.
	arrays := "\x93gpumux 1\nand so on"
	s.write("arrays", arrays)
	for range 2 { // it is there once
		m = s.over("", 2)
		m.Input.Task, m.ArgFile, m.Input.ArgFile = "shared:opened", filepath.Join(s.dir, "arrays"), "sources/"+strings.Repeat("0a", 32)+".arg"
		h, _ = s.done(m)
		var opened []string
		require.NoError(t, json.Unmarshal([]byte(s.values(h)[1]), &opened))
		require.Equal(t, []string{filepath.Join(s.dir, "store", m.Input.ArgFile), "\u0093gpumux 1\nand so on"}, opened, "where the store has it")
	}

	m = s.over("double", 3)
	m.Input.Arg = json.RawMessage(`"` + strings.Repeat("x", gpumux.MaxArgFile) + `"`)
	_, err = s.Start(t.Context(), m)
	require.ErrorContains(t, err, "more than 16MiB")
}

// What a server's workers have in their store is read there.
func valuesOfMap(s *stage) {
	t := s.t
	m := s.over("double", 10)
	m.ID = "first"
	first, _ := s.done(m)
	h, _ := s.done(starter.Map{Input: gpumux.MapInput{Task: "step:double", Ladder: []string{"cpu"}, Source: gpumux.ValuesOf(first.Output)}})
	for i, value := range s.values(h) {
		require.Equal(t, fmt.Sprint(4*i), value)
	}
}

// A schedule of Temporal's starts a map with the input that the docs give it.
func schedule(s *stage) {
	t := s.t
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "store", "inputs"), 0o755))
	s.write("store/inputs/texts.jsonl", "\"one\"\n\"two three\"\n")
	page, err := os.ReadFile("../../docs/workflows.md")
	require.NoError(t, err)
	input := found(t, `(?s)temporal schedule create .*?--input '(.*?)'`, string(page))
	nightly, err := s.Client.ScheduleClient().Create(t.Context(), client.ScheduleOptions{
		ID: "nightly", Spec: client.ScheduleSpec{CronExpressions: []string{"0 2 29 2 *"}},
		Action: &client.ScheduleWorkflowAction{ID: "nightly", Workflow: gpumux.MapWorkflow, TaskQueue: gpumux.Queue, Args: []any{json.RawMessage(input)}},
	})
	require.NoError(t, err)
	require.NoError(t, nightly.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	id := ""
	s.until("it has started a map", func() bool {
		now, err := nightly.Describe(t.Context())
		if err == nil && len(now.Info.RecentActions) > 0 {
			id = now.Info.RecentActions[0].StartWorkflowResult.WorkflowID
		}
		return id != ""
	})
	h, err := s.Open(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "words:count", h.Task)
	_, err = s.wait(h)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, s.values(h))
}

// A server before 1.32 has no standalone activities.
func olderServer(s *stage) {
	t := s.t
	old := &starter.Starter{Client: older{s.Client}, Namespace: s.Namespace}
	defer old.Close()
	offer, err := fleetOf(old).Offer(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.config.Store, offer.Store)
	all, err := fleetOf(old).Workers(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.NotNil(t, all[0].Offer, all[0].Error)
	h, err := old.Start(t.Context(), s.over("double", 5000))
	require.NoError(t, err)
	values := s.values(h)
	require.Len(t, values, 5000)
	require.Equal(t, "9998", values[4999])
}
