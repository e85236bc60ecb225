package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// worker stands in for gpumux workers: it squares numbers, and does to each chunk what the test says.
type worker struct {
	mu      sync.Mutex
	chunks  []contract.Chunk
	queues  []string
	perItem time.Duration
	odd     func(contract.Chunk, string) (*contract.ChunkResult, error)
	stored  map[int64]bool
	lists   map[string][]int64
	// lose is called with what is stored when results are merged.
	lose  func(stored map[int64]bool)
	items int64
	slots int // default 2
	told  func(context.Context)
	// edition is that of the code, asked how often a map wanted to know.
	edition string
	// likely is how many slots FindEdition tells of.
	likely int
	asked  int
}

func (w *worker) run(ctx context.Context, c contract.Chunk) (contract.ChunkResult, error) {
	queue := activity.GetInfo(ctx).TaskQueue
	if w.told != nil {
		w.told(ctx)
	}
	w.mu.Lock()
	w.chunks = append(w.chunks, c)
	w.queues = append(w.queues, queue)
	w.mu.Unlock()
	if w.odd != nil {
		if result, err := w.odd(c, queue); result != nil || err != nil {
			return *cmpOr(result), err
		}
	}
	n := c.Len()
	result := contract.ChunkResult{
		Covered: n, Ran: n, Succeeded: n, Busy: gpumux.Duration(time.Duration(n) * w.perItem), Worker: "w1", Slots: cmp.Or(w.slots, 2),
	}
	for _, i := range w.indices(c.Work) {
		if c.Parts != "" && !c.Inline {
			w.mu.Lock()
			w.stored[i] = true
			w.mu.Unlock()
			continue
		}
		result.Results = append(result.Results, gpumux.Result{Index: i, Value: json.RawMessage(fmt.Sprint(i * i))})
	}
	return result, nil
}

// indices are the items that work stands for.
func (w *worker) indices(work contract.Work) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.among(work)
}

// among is indices for whoever holds the lock.
func (w *worker) among(work contract.Work) (all []int64) {
	if work.List != nil {
		return w.lists[work.List.URL][work.Start:work.End]
	}
	for _, run := range work.Runs {
		for i := run.Start; i < run.End; i++ {
			all = append(all, i)
		}
	}
	return all
}

// list keeps items as a work list.
func (w *worker) list(runs gpumux.Runs) contract.Work {
	url := fmt.Sprintf("list-%d", len(w.lists))
	w.lists[url] = nil
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			w.lists[url] = append(w.lists[url], i)
		}
	}
	n := int64(len(w.lists[url]))
	return contract.Work{List: &gpumux.Source{URL: url, Index: url + ".index", Items: n}, End: n}
}

func cmpOr(r *contract.ChunkResult) *contract.ChunkResult {
	if r == nil {
		return &contract.ChunkResult{}
	}
	return r
}

func (w *worker) register(env *testsuite.TestWorkflowEnvironment) {
	if w.stored == nil {
		w.stored = map[int64]bool{}
	}
	w.lists = map[string][]int64{}
	name := func(n string) activity.RegisterOptions { return activity.RegisterOptions{Name: n} }
	env.RegisterActivityWithOptions(w.run, name(contract.RunChunk))
	env.RegisterActivityWithOptions(func(context.Context, contract.EditionInput) (contract.Edition, error) {
		w.asked++
		return contract.Edition{Edition: cmp.Or(w.edition, "e1"), Slots: w.likely}, nil
	}, name(contract.FindEdition))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.IndexInput) (gpumux.Source, error) {
		return gpumux.Source{URL: in.Source, Index: in.Index, Items: max(100, w.items)}, nil
	}, name(contract.IndexSource))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.PartsInput) (contract.Found, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		found := contract.Found{Succeeded: int64(len(w.stored)), Claim: contract.Claim{ID: "claim", Store: "store"}}
		for i := range in.Items {
			if !w.stored[i] {
				found.Rest.Runs.Add(i)
			}
		}
		if len(found.Rest.Runs) > 1000 {
			found.Rest = w.list(found.Rest.Runs)
		}
		return found, nil
	}, name(contract.FindParts))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.ListInput) (contract.Work, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.list(in.Runs), nil
	}, name(contract.WriteList))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.PartInput) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, r := range in.Results {
			w.stored[r.Index] = true
		}
		return nil
	}, name(contract.WritePart))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.MergeInput) (contract.Merged, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lose != nil {
			w.lose(w.stored)
		}
		if n := int64(len(w.stored)); n != in.Items {
			return contract.Merged{Missing: fmt.Sprintf("%d of %d are stored", n, in.Items)}, nil
		}
		return contract.Merged{Items: in.Items, Succeeded: in.Items, Output: "file:///" + in.Output}, nil
	}, name(contract.MergeParts))
	workflows.Register(env)
}

func start(c contract.Chunk) int64 { return c.Runs[0].Start }
func end(c contract.Chunk) int64   { return c.Runs[len(c.Runs)-1].End - 1 }

func square(ctx workflow.Context, n int, o workflows.Options) ([]workflows.Result[int], error) {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return workflows.Map[int, int](ctx, "square", items, o)
}

// environment fails a test in which nothing happens for so long.
func environment(limit time.Duration) *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(limit)
	return env
}

func run(t *testing.T, w *worker, f any, args ...any) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	env := environment(20 * time.Second)
	w.register(env)
	env.ExecuteWorkflow(f, args...)
	require.True(t, env.IsWorkflowCompleted())
	return env
}

func TestMap_ResultsAreInOrderWhateverTheChunks(t *testing.T) {
	for _, o := range []workflows.Options{{}, {Chunk: 7}, {Window: 1}, {Chunk: 1000}} {
		w := &worker{perItem: time.Millisecond}
		env := run(t, w, square, 500, o)
		var results []workflows.Result[int]
		require.NoError(t, env.GetWorkflowResult(&results))
		require.Len(t, results, 500)
		for i, r := range results {
			require.Nil(t, r.Fault)
			require.Equal(t, i*i, r.Value)
		}
		seen := make([]int, 500)
		for _, c := range w.chunks {
			for _, i := range w.indices(c.Work) {
				seen[i]++
			}
		}
		require.Equal(t, slices.Repeat([]int{1}, 500), seen, "each item is handed out once")
	}
}

func TestMap_OneItemIsOneActivity(t *testing.T) {
	w := &worker{}
	env := run(t, w, square, 1, workflows.Options{})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, w.chunks, 1)
}

func TestMap_NoItems(t *testing.T) {
	w := &worker{}
	env := run(t, w, square, 0, workflows.Options{})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Empty(t, results)
	require.Empty(t, w.chunks)
}

func TestMap_ChunksAreAShareOfWhatIsLeft(t *testing.T) {
	w := &worker{perItem: 10 * time.Millisecond}
	env := run(t, w, square, 3000, workflows.Options{})
	require.NoError(t, env.GetWorkflowError())
	// Activities run side by side, so the order in which they came is not that in which they were cut.
	slices.SortFunc(w.chunks, func(a, b contract.Chunk) int { return int(start(a) - start(b)) })
	sizes := make([]int64, len(w.chunks))
	for i, c := range w.chunks {
		sizes[i] = c.Len()
	}
	require.EqualValues(t, 187, sizes[0], "a quarter of a share, while nobody knows how many slots there are")
	require.EqualValues(t, 200*time.Millisecond, w.chunks[0].Limit, "which hands back what takes too long")
	require.Less(t, slices.Max(sizes), int64(750), "half of a slot's share")
	require.Less(t, sizes[len(sizes)-1], int64(10), "the last chunk is small")
}

// Nothing tells how many slots there are while the first items of all take an hour.
func TestMap_LongItemsReachAllSlots(t *testing.T) {
	env := environment(time.Minute)
	const slots = 64
	gate := make(chan struct{})
	began := 0
	w := &worker{slots: slots}
	w.odd = func(contract.Chunk, string) (*contract.ChunkResult, error) {
		w.mu.Lock()
		if began++; began == slots {
			close(gate)
		}
		w.mu.Unlock()
		<-gate
		return nil, nil
	}
	w.register(env)
	env.ExecuteWorkflow(square, 1000, workflows.Options{})
	require.NoError(t, env.GetWorkflowError())
}

func TestMap_ItemsThatNeedMoreMemoryGoUpTheLadder(t *testing.T) {
	w := &worker{odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		if queue != "gpumux.small" || start(c) > 3 || end(c) < 3 {
			return nil, nil
		}
		r := contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Escalate: gpumux.Runs{{Start: 3, End: 4}}}
		for i := start(c); i <= end(c); i++ {
			if i != 3 {
				r.Results = append(r.Results, gpumux.Result{Index: i, Value: json.RawMessage(fmt.Sprint(i * i))})
			}
		}
		return &r, nil
	}}
	env := run(t, w, square, 10, workflows.Options{Ladder: []string{"small", "large"}, Chunk: 5})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	for i, r := range results {
		require.Equal(t, i*i, r.Value)
	}
	at := slices.Index(w.queues, "gpumux.large")
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, gpumux.Runs{{Start: 3, End: 4}}, w.chunks[at].Runs)
	require.False(t, w.chunks[at].Larger, "the last rung has none above it")
	require.True(t, w.chunks[0].Larger)
}

func TestMap_AFaultIsAResult(t *testing.T) {
	fault := &gpumux.Fault{Kind: gpumux.TaskError, Message: "boom"}
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) != 2 {
			return nil, nil
		}
		failed := gpumux.Result{Index: 2, Fault: fault}
		return &contract.ChunkResult{Covered: c.Len(), Ran: 1, Failed: 1, Results: []gpumux.Result{failed}, Recent: []gpumux.Result{failed}}, nil
	}}
	env := run(t, w, square, 4, workflows.Options{Chunk: 1})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, fault, results[2].Fault)
	require.Nil(t, results[3].Fault)
	_, err := workflows.Values(results)
	require.ErrorContains(t, err, "item 2: task_error: boom")
	require.Equal(t, fault, workflows.FaultOf(err))

	env = run(t, w, square, 4, workflows.Options{Chunk: 1, FailFast: true})
	require.ErrorContains(t, env.GetWorkflowError(), "item 2 failed and the map is to fail fast")
	require.Equal(t, "boom", workflows.FaultOf(env.GetWorkflowError()).Message)
}

func TestMap_AChunkThatStopsEarlyIsContinued(t *testing.T) {
	first := true
	w := &worker{}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if !first {
			return nil, nil
		}
		first = false
		return &contract.ChunkResult{Covered: 1, Ran: 1, Succeeded: 1, Results: []gpumux.Result{{Index: start(c), Value: json.RawMessage("0")}}}, nil
	}
	env := run(t, w, square, 10, workflows.Options{Chunk: 10})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, 81, results[9].Value)
	require.Equal(t, []gpumux.Runs{{{Start: 0, End: 10}}, {{Start: 1, End: 10}}}, []gpumux.Runs{w.chunks[0].Runs, w.chunks[1].Runs})
}

func TestMap_InvalidOptionsNameTheField(t *testing.T) {
	env := run(t, &worker{}, square, 1, workflows.Options{Ladder: []string{"No Such"}, Attempts: -1})
	require.ErrorContains(t, env.GetWorkflowError(), "ladder[0]")
	require.ErrorContains(t, env.GetWorkflowError(), "attempts")
	require.Equal(t, gpumux.BadInput, workflows.FaultOf(env.GetWorkflowError()).Kind)
}

func TestRegistered_InlineItemsComeBackInline(t *testing.T) {
	w := &worker{}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Items: []json.RawMessage{[]byte("1"), []byte("2")}})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Len(t, s.Results, 2)
	require.EqualValues(t, 2, s.Succeeded)
	require.Empty(t, s.Output)
}

func TestRegistered_AnEmptyMapIsDone(t *testing.T) {
	env := run(t, &worker{}, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Items: []json.RawMessage{}})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Zero(t, s.Items)
}

func TestRegistered_StoredItemsAreNotRunAgain(t *testing.T) {
	w := &worker{stored: map[int64]bool{50: true}}
	for i := range int64(40) {
		w.stored[i] = true
	}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl"})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 100, s.Items)
	require.Equal(t, "file:///maps/x/1/results.jsonl", s.Output)
	for _, c := range w.chunks {
		require.Equal(t, "maps/x/1/results.jsonl.parts", c.Parts)
		for _, i := range w.indices(c.Work) {
			require.False(t, i < 40 || i == 50, "item %d is finished already", i)
		}
	}
}

func TestRegistered_LargeResultsSpillIntoTheStore(t *testing.T) {
	w := &worker{}
	big, _ := json.Marshal(string(make([]byte, 20<<10)))
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		r := contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Succeeded: c.Len()}
		for _, i := range w.indices(c.Work) {
			r.Results = append(r.Results, gpumux.Result{Index: i, Value: big})
		}
		return &r, nil
	}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 60}, Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Empty(t, s.Results)
	require.Contains(t, s.Output, "results.jsonl")
	require.Len(t, w.stored, 60)
}

func TestRegistered_PauseHoldsChunksBack(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	w := &worker{perItem: time.Second}
	w.register(env)
	count := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.chunks) }
	update := func(name string, args ...any) {
		env.UpdateWorkflow(name, name, &testsuite.TestUpdateCallback{
			OnReject: func(err error) { t.Errorf("%s: %v", name, err) }, OnAccept: func() {}, OnComplete: func(any, error) {},
		}, args...)
	}
	var before, after int
	env.RegisterDelayedCallback(func() { update(gpumux.PauseUpdate) }, 0)
	env.RegisterDelayedCallback(func() { before = count() }, time.Minute)
	env.RegisterDelayedCallback(func() {
		after = count()
		var p gpumux.Progress
		value, err := env.QueryWorkflow(gpumux.ProgressQuery)
		require.NoError(t, err)
		require.NoError(t, value.Get(&p))
		require.True(t, p.Paused)
		require.Zero(t, p.InFlight)
		update(gpumux.ResumeUpdate)
	}, time.Hour)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 400}, Chunk: 1, Window: 2})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, before, after, "nothing starts while the map is paused")
	require.Less(t, after, 400)
	require.Equal(t, 400, count())
}

// given is what a map's own workflows are given.
type given struct {
	Input gpumux.MapInput
	Carry contract.Carry
}

func TestRegistered_ALargeMapRunsInSegments(t *testing.T) {
	w := &worker{items: 3000}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 3000, s.Items)
	require.EqualValues(t, 3000, s.Chunks)
	seen := map[int64]int{}
	for _, c := range w.chunks {
		seen[start(c)]++
	}
	require.Len(t, seen, 3000)
	for start, times := range seen {
		require.Equal(t, 1, times, "item %d", start)
	}
}

func TestRegistered_ManySlotsAreFilledBySeveralSegments(t *testing.T) {
	env := environment(time.Minute)
	// The test environment stops for ever when more than 1,000 events wait, so the activities under way must stay below.
	w := &worker{items: 4000, slots: 300}
	w.register(env)
	running, most := 0, 0
	env.SetOnChildWorkflowStartedListener(func(_ *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in given
		require.NoError(t, args.Get(&in))
		require.Equal(t, 3, in.Carry.Abreast)
		running++
		most = max(most, running)
	})
	env.SetOnChildWorkflowCompletedListener(func(*workflow.Info, converter.EncodedValue, error) { running-- })
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 4000, s.Chunks)
	require.Equal(t, 3, most)
	seen := map[int64]bool{}
	for _, c := range w.chunks {
		require.False(t, seen[start(c)], "item %d", start(c))
		seen[start(c)] = true
	}
	require.Len(t, seen, 4000)
}

// A window that is widened while segments run brings further ones at once.
func TestRegistered_AWiderWindowTakesMoreSegments(t *testing.T) {
	env := environment(20 * time.Second)
	gate := make(chan struct{})
	w := &worker{items: 2500}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) >= 500 {
			<-gate
		}
		return nil, nil
	}
	w.register(env)
	began := 0
	env.SetOnChildWorkflowStartedListener(func(*workflow.Info, workflow.Context, converter.EncodedValues) {
		if began++; began == 3 {
			close(gate)
		}
	})
	// By then two segments wait for the gate, and nothing else happens.
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(gpumux.WindowUpdate, "", &testsuite.TestUpdateCallback{
			OnReject: func(err error) { t.Error(err) }, OnAccept: func() {}, OnComplete: func(any, error) {},
		}, 750)
	}, 2*time.Second)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{
		Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1, Window: 4,
	})
	require.NoError(t, env.GetWorkflowError())
}

func TestRegistered_AFailedSegmentFailsTheMap(t *testing.T) {
	w := &worker{items: 3000, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) != 2000 {
			return nil, nil
		}
		f := gpumux.Fault{Kind: gpumux.BadInput, Message: "no such thing"}
		return nil, temporal.NewApplicationErrorWithOptions(f.Error(), string(f.Kind), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{f}})
	}}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	require.Equal(t, "no such thing", workflows.FaultOf(env.GetWorkflowError()).Message)
}

func TestRegistered_AVeryLongMapContinuesAsANewRun(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	w := &worker{items: 3000}
	w.register(env)
	env.SetContinueAsNewSuggested(true)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	var in given
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.Equal(t, []contract.Piece{{Work: contract.Work{Runs: gpumux.Runs{{Start: 500, End: 3000}}}}}, in.Carry.Todo)
	require.EqualValues(t, 500, in.Carry.Succeeded)

	// The next run takes it from there.
	env = suite.NewTestWorkflowEnvironment()
	env.SetContinuedExecutionRunID("the run before")
	w.register(env)
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 3000, s.Items)
}
