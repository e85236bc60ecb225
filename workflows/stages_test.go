package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// staged answers chunks whose items travel inline: "double" on the pool cpu, and "next"
// on the pool gpu, which adds one. Each fails the items that are listed for it.
func staged(failing map[string][]int) func(contract.Chunk, string) (*contract.ChunkResult, error) {
	return func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		r := &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Busy: gpumux.Duration(c.Len()) * gpumux.Duration(time.Millisecond), Worker: queue, Slots: 2}
		at := c.Runs
		for _, item := range c.Items {
			n := 0
			if err := json.Unmarshal(item, &n); err != nil {
				return nil, err
			}
			result := gpumux.Result{Index: at.Take(1, 1)[0].Start, Value: fmt.Append(nil, map[string]int{"double": 2 * n, "next": n + 1}[c.Task])}
			if slices.Contains(failing[c.Task], n) {
				result.Value, result.Fault = nil, &gpumux.Fault{Kind: gpumux.FaultTaskError, Task: c.Task, Message: fmt.Sprint("no ", n)}
				r.Failed++
				r.Recent = append(r.Recent, result)
			}
			r.Results = append(r.Results, result)
		}
		r.Succeeded = r.Ran - r.Failed
		if r.Failed > 0 {
			r.Faults = map[gpumux.FaultKind]int64{gpumux.FaultTaskError: r.Failed}
		}
		return r, nil
	}
}

var doubleNext = []gpumux.Stage{{Task: "double", Ladder: []string{"cpu"}}, {Task: "next"}}

// numbers runs a map of stages over the numbers below n.
func numbers(ctx workflow.Context, n int, in gpumux.MapInput) (workflows.Mapped[int], error) {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	if in.Stages == nil {
		in.Stages = doubleNext
	}
	return workflows.Map[int, int](ctx, in, items)
}

// The value of a stage is the item of the next, in another pool. A failed one ends there.
// Keys and items of results are the map's own.
func TestStages_ValuesGoThroughTheHistory(t *testing.T) {
	w := &worker{odd: staged(map[string][]int{"double": {1}, "next": {6}})}
	env := run(t, w, numbers, 5, gpumux.MapInput{WithItem: true})
	var mapped workflows.Mapped[int]
	require.NoError(t, env.GetWorkflowResult(&mapped))
	tasks := []string{}
	for i, r := range mapped.Results {
		require.EqualValues(t, i, r.Index)
		require.Equal(t, fmt.Sprint(i), string(r.Item))
		if r.Fault != nil {
			tasks = append(tasks, fmt.Sprint(i, " ", r.Fault.Task))
			continue
		}
		require.Equal(t, 2*i+1, r.Value)
	}
	require.Equal(t, []string{"1 double", "3 next"}, tasks)
	s := mapped.Summary
	require.Equal(t, "double > next", s.Task)
	require.EqualValues(t, []int64{5, 3, 2}, []int64{s.Items, s.Succeeded, s.Failed})
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 2}, s.Faults)
	require.EqualValues(t, []int64{4, 1, 3, 1}, []int64{s.Stages[0].Succeeded, s.Stages[0].Failed, s.Stages[1].Succeeded, s.Stages[1].Failed})
	for i, c := range w.chunks {
		require.Equal(t, map[string]string{"double": "gpumux.cpu", "next": "gpumux.gpu"}[c.Task], w.queues[i])
		require.False(t, c.WithItem, "items are in the history already")
	}
}

func TestStages_KeysAreThoseOfTheItems(t *testing.T) {
	type row struct {
		ID string
		N  int
	}
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		value := json.RawMessage(`{"ID": "other"}`)
		if c.Task == "next" {
			value = json.RawMessage("1")
		}
		r := &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Counts: contract.Counts{Succeeded: c.Len()}}
		for i := start(c); i <= end(c); i++ {
			r.Results = append(r.Results, gpumux.Result{Index: i, Value: value})
		}
		return r, nil
	}}
	env := run(t, w, func(ctx workflow.Context) (workflows.Mapped[int], error) {
		return workflows.Map[row, int](ctx, gpumux.MapInput{Stages: doubleNext, Key: "ID"}, []row{{"a", 1}, {"b", 2}})
	})
	var mapped workflows.Mapped[int]
	require.NoError(t, env.GetWorkflowResult(&mapped))
	require.Equal(t, []workflows.Result[int]{{Value: 1, Key: []byte(`"a"`)}, {Index: 1, Value: 1, Key: []byte(`"b"`)}}, mapped.Results)
}

// Next and a selector have each item once: when it has gone through all stages, or
// failed.
func TestStages_MapAsyncGivesEachItemOnce(t *testing.T) {
	env := run(t, &worker{odd: staged(map[string][]int{"double": {2}, "next": {12}})}, func(ctx workflow.Context) (seen []int, err error) {
		in := gpumux.MapInput{Stages: doubleNext, Chunk: 2}
		next, selected := workflows.MapAsync[int, int](ctx, in, []int{0, 1, 2, 3}), workflows.MapAsync[int, int](ctx, in, []int{4, 5, 6})
		for r, more := next.Next(ctx); more; r, more = next.Next(ctx) {
			seen = append(seen, int(r.Index), r.Value)
		}
		selector, ended := workflow.NewSelector(ctx), false
		selected.AddTo(selector, func(r workflows.Result[int], more bool) {
			if ended = !more; more {
				seen = append(seen, 10+int(r.Index), r.Value)
			}
		})
		for !ended {
			selector.Select(ctx)
		}
		_, err = selected.Get(ctx)
		return seen, err
	})
	var seen []int
	require.NoError(t, env.GetWorkflowResult(&seen))
	values := map[int]int{}
	for i := 0; i < len(seen); i += 2 {
		require.NotContains(t, values, seen[i])
		values[seen[i]] = seen[i+1]
	}
	require.Equal(t, map[int]int{0: 1, 1: 3, 2: 0, 3: 7, 10: 9, 11: 11, 12: 0}, values)
}

// A stage's own attempts and pauses hold for it alone.
func TestStages_EachTriesInItsOwnWay(t *testing.T) {
	env := environment(20 * time.Second)
	tries := []time.Time{}
	w := &worker{}
	w.odd = func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		if c.Task == "double" || c.Tries == 2 {
			return staged(nil)(c, queue)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		tries = append(tries, env.Now())
		return &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Retry: c.Runs}, nil
	}
	w.register(env)
	stages := slices.Clone(doubleNext)
	stages[1].Attempts, stages[1].Backoff = 3, gpumux.Duration(40*time.Second)
	stages[1].Arg, stages[1].RetryOn = []byte("2"), []string{"B"}
	env.ExecuteWorkflow(numbers, 1, gpumux.MapInput{Stages: stages, Attempts: 2, ArgFile: "args/1.json", RetryOn: []string{"A"}})
	var mapped workflows.Mapped[int]
	require.NoError(t, env.GetWorkflowResult(&mapped))
	require.Equal(t, 1, mapped.Results[0].Value)
	for _, c := range w.chunks {
		require.Equal(t, c.Task == "next", c.Backoff)
		require.Equal(t, map[string]int{"double": 2, "next": 3}[c.Task], c.Attempts)
		require.Equal(t, map[string]string{"double": "A args/1.json ", "next": "B  2"}[c.Task], c.RetryOn[0]+" "+c.ArgFile+" "+string(c.Arg))
	}
	require.GreaterOrEqual(t, tries[1].Sub(tries[0]), 40*time.Second)
}

func TestStages_FailuresCountInAll(t *testing.T) {
	w := &worker{odd: staged(map[string][]int{"double": {0, 1}, "next": {4, 6}})}
	env := run(t, w, numbers, 10, gpumux.MapInput{Chunk: 1, Window: 1, MaxFailures: "3"})
	require.ErrorContains(t, env.GetWorkflowError(), "4 of 10 items failed, more than the 3 that may (3)")
	for _, c := range w.chunks {
		if c.Task == "next" {
			require.LessOrEqual(t, *c.MayFail, int64(2), "an earlier stage had failures")
		}
	}
	env = run(t, &worker{odd: w.odd}, numbers, 10, gpumux.MapInput{Chunk: 1, MaxFailures: "4"})
	require.NoError(t, env.GetWorkflowError())
}

// A task that nobody knows ends the map, also where its stage has no item yet.
func TestStages_AnUnknownTaskOfALaterStage(t *testing.T) {
	answer := make(chan struct{})
	w := &worker{unknown: "next", odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		<-answer
		return staged(nil)(c, queue)
	}}
	env := environment(20 * time.Second)
	w.register(env)
	env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == contract.FindEdition {
			close(answer)
		}
	})
	env.ExecuteWorkflow(numbers, 5, gpumux.MapInput{Window: 1})
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.NotNil(t, fault, "%v", env.GetWorkflowError())
	require.Equal(t, "no task", fault.Message)
	for _, c := range w.chunks {
		require.Equal(t, "double", c.Task)
	}
}

// A map whose chunks cannot fit is refused before anything runs. Otherwise the chunks of
// all stages together have room.
func TestStages_FitIntoTheHistory(t *testing.T) {
	w := &worker{odd: staged(nil)}
	err := run(t, w, numbers, 3000, gpumux.MapInput{Chunk: 1}).GetWorkflowError()
	require.ErrorContains(t, err, "with 3000 items in chunks of 1 it has 48")
	require.Empty(t, w.chunks)

	for at, fixed := range []string{"", "double", "next", "", "next"} {
		length := 37_000
		env, has := environment(time.Minute), length
		w := &worker{odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
			r, err := staged(nil)(c, queue)
			r.Busy = gpumux.Duration(c.Len()) * gpumux.Duration(2*time.Second)
			return r, err
		}}
		env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) {
			has += 8 // events
			env.SetCurrentHistoryLength(has)
		})
		w.register(env)
		env.SetCurrentHistoryLength(length)
		stages := slices.Clone(doubleNext)
		if at > 2 {
			stages = append(stages, gpumux.Stage{Task: "double"})
		}
		for i := range stages {
			if stages[i].Task == fixed {
				stages[i].Chunk = 80
			}
		}
		env.ExecuteWorkflow(numbers, 10_000, gpumux.MapInput{Stages: stages})
		var mapped workflows.Mapped[int]
		require.NoError(t, env.GetWorkflowResult(&mapped), "fixed %q", fixed)
		require.EqualValues(t, 10_000, mapped.Summary.Succeeded)
		require.LessOrEqual(t, mapped.Summary.Chunks, int64(40_000-length)/8)
		for _, c := range w.chunks {
			if c.Task == fixed {
				require.EqualValues(t, 80, c.Len())
			}
		}
	}
}

// sourced is a map of stages over the fake worker's source.
var sourced = gpumux.MapInput{Stages: doubleNext, Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1, Window: 2}

// Segments take items through all stages, and what a run leaves waits in front of the
// stage that it had come to.
func TestStages_GoOnInTheNextRun(t *testing.T) {
	w := &worker{items: 1200}
	env := environment(time.Minute)
	w.register(env)
	env.SetContinueAsNewSuggested(true)
	env.ExecuteWorkflow(gpumux.MapWorkflow, sourced)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	var in handoff
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	first, second := in.Carry.Stages[0], in.Carry.Stages[1]
	require.Positive(t, second.Todo.Items())
	require.Equal(t, first.Succeeded, second.Succeeded+second.Todo.Items())
	require.EqualValues(t, 1200, first.Succeeded+first.Todo.Items())
	for _, piece := range second.Todo {
		require.Equal(t, []contract.Written{{Writer: "w1"}}, piece.From)
	}

	var segments, waiting int64
	env = environment(time.Minute)
	env.SetContinuedExecutionRunID("the run before")
	w.register(env)
	env.SetOnChildWorkflowStartedListener(func(_ *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in handoff
		require.NoError(t, args.Get(&in))
		segments++
		waiting += in.Carry.Stages[1].Todo.Items()
	})
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 1200, s.Succeeded)
	require.Positive(t, waiting, "of %d segments", segments)
	require.EqualValues(t, []int64{1200, 1200}, []int64{s.Stages[0].Succeeded, s.Stages[1].Succeeded})
	ran := map[string]map[int64]int{"double": {}, "next": {}}
	for _, c := range w.chunks {
		ran[c.Task][start(c)]++
		if c.Task == "next" {
			require.Equal(t, 1, ran["double"][start(c)], "item %d has a value", start(c))
			require.NotEmpty(t, c.Values.Folder)
		}
	}
	for task, items := range ran {
		require.Len(t, items, 1200, task)
		for i, times := range items {
			require.Equal(t, 1, times, "%s of item %d", task, i)
		}
	}
}

// A later run finds the values of the first stage.
func TestStages_StoredValuesAreNotMadeAgain(t *testing.T) {
	w := &worker{}
	require.NoError(t, run(t, w, gpumux.MapWorkflow, sourced).GetWorkflowError())
	w.chunks, w.stored = nil, map[int64]bool{7: true}
	require.NoError(t, run(t, w, gpumux.MapWorkflow, sourced).GetWorkflowError())
	require.Len(t, w.chunks, 99)
	for _, c := range w.chunks {
		require.Equal(t, "next", c.Task)
	}
}

// A pause holds all stages, the window is that of each, and the progress tells them
// apart.
func TestStages_AreSteeredTogether(t *testing.T) {
	env := environment(20 * time.Second)
	w := &worker{odd: raises}
	var mu sync.Mutex
	ready := false
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		mu.Lock()
		defer mu.Unlock()
		if c.Task == "double" || ready {
			return nil, nil
		}
		return &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Retry: c.Runs}, nil
	}
	w.register(env)
	send := func(name string, args ...any) {
		env.UpdateWorkflow(name, name, &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { require.NoError(t, err) }, OnComplete: func(any, error) {},
		}, args...)
	}
	var before, paused gpumux.Progress
	chunks := 0
	env.RegisterDelayedCallback(func() {
		before = progressOf(t, env)
		send(gpumux.PauseUpdate)
	}, time.Hour)
	env.RegisterDelayedCallback(func() {
		mu.Lock()
		ready, chunks = true, len(w.chunks)
		mu.Unlock()
	}, 2*time.Hour)
	env.RegisterDelayedCallback(func() {
		paused = progressOf(t, env)
		require.Len(t, w.chunks, chunks, "nothing is handed out")
		send(gpumux.ResumeUpdate)
	}, 30*time.Hour)
	in := sourced
	in.Chunk, in.Window, in.Attempts, in.Backoff = 10, 0, 9, gpumux.Duration(24*time.Hour)
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Equal(t, "double > next", before.Task)
	require.EqualValues(t, 0, before.Succeeded)
	require.EqualValues(t, 100, before.Waiting)
	require.Equal(t, "another try of items that raised", before.WaitingFor)
	require.Equal(t, []gpumux.RungBacklog{{Rung: "gpu", Items: 100}}, before.Backlog)
	require.EqualValues(t, []int64{100, 0, 0, 100}, []int64{before.Stages[0].Succeeded, before.Stages[0].Waiting, before.Stages[1].Succeeded, before.Stages[1].Waiting})
	require.True(t, paused.Paused)
	require.EqualValues(t, 100, s.Succeeded)
}

// unserved stands for the watch of pools: nobody serves those that are named. The others
// are served until the test ends, and again reports when one is asked for again.
func unserved(t *testing.T, env *testsuite.TestWorkflowEnvironment, again func(), pools ...string) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	env.RegisterActivityWithOptions(func(ctx context.Context, in contract.WatchInput) error {
		if slices.Contains(pools, activity.GetInfo(ctx).TaskQueue) && !in.Once {
			return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		if in.Once {
			again()
		}
		<-ended
		return errors.New("the test has ended")
	}, activity.RegisterOptions{Name: contract.WatchPool})
}

// The map ends where any stage's pools are away for too long.
func TestStages_APoolTimeoutIsOfEach(t *testing.T) {
	env := environment(20 * time.Second)
	began := make(chan struct{})
	w := &worker{odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		if c.Task == "next" {
			<-began
			return nil, temporal.NewCanceledError()
		}
		return staged(nil)(c, queue)
	}}
	w.register(env)
	unserved(t, env, func() { close(began) }, contract.WatchQueue("gpumux.gpu"))
	env.ExecuteWorkflow(numbers, 3, gpumux.MapInput{PoolTimeout: gpumux.Duration(time.Hour)})
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.NotNil(t, fault, "%v", env.GetWorkflowError())
	require.Equal(t, []any{gpumux.FaultTimeout, "start"}, []any{fault.Kind, fault.Op})
	require.Contains(t, fault.Message, "no worker had a healthy device for gpu within the poolTimeout of 1h")
}

// A later stage's work goes down its own ladder.
func TestStages_APoolOfALaterStageIsPassedOver(t *testing.T) {
	env := environment(20 * time.Second)
	passed := make(chan struct{})
	w := &worker{odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		if queue == "gpumux.gpu" {
			<-passed
			return nil, temporal.NewCanceledError()
		}
		return staged(nil)(c, queue)
	}}
	w.register(env)
	unserved(t, env, func() { close(passed) }, contract.WatchQueue("gpumux.gpu"))
	stages := slices.Clone(doubleNext)
	stages[1].Ladder = []string{"gpu", "large"}
	env.ExecuteWorkflow(numbers, 20, gpumux.MapInput{Stages: stages})
	var mapped workflows.Mapped[int]
	require.NoError(t, env.GetWorkflowResult(&mapped))
	values, err := mapped.Values()
	require.NoError(t, err)
	require.Equal(t, 39, values[19])
	require.Equal(t, []string{"gpu"}, mapped.Summary.PassedOver)
	require.Contains(t, w.queues, "gpumux.large")
}
