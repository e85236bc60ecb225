package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// worker stands in for gpumux workers. It squares numbers; odd may answer a chunk in
// another way.
type worker struct {
	mu      sync.Mutex
	chunks  []contract.Chunk
	queues  []string
	perItem time.Duration
	odd     func(contract.Chunk, string) (*contract.ChunkResult, error)
	stored  map[int64]bool
	// staged are those that have a value in stages before the last, by the stage's folder.
	staged map[string]map[int64]bool
	lists  map[string][]int64
	// lose is called with what is stored when results are merged.
	lose  func(stored map[int64]bool)
	items int64
	slots int // default 2
	// edition is the code's edition. The field asked counts how often a map asked for it.
	edition string
	// likely is the number of slots that FindEdition returns.
	likely int
	asked  int
	// unknown is a task that no worker knows.
	unknown string
}

func (w *worker) run(ctx context.Context, c contract.Chunk) (contract.ChunkResult, error) {
	queue := activity.GetInfo(ctx).TaskQueue
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
		Covered: n, Ran: n, Counts: contract.Counts{Succeeded: n}, Busy: gpumux.Duration(time.Duration(n) * w.perItem), Worker: "w1", Slots: cmp.Or(w.slots, 2),
	}
	for _, i := range w.indices(c.Work) {
		if c.Parts != "" {
			w.mu.Lock()
			w.folder(c.Parts, c.Feeds)[i] = true
			w.mu.Unlock()
			if c.Feeds {
				result.Done.Add(i)
			}
			continue
		}
		result.Results = append(result.Results, gpumux.Result{Index: i, Value: json.RawMessage(fmt.Sprint(i * i))})
	}
	if c.Feeds && c.Parts != "" {
		result.Written, result.Bytes = []contract.Written{{Writer: "w1"}}, 10*n
	}
	return result, nil
}

// folder is which items have a result in a folder. The caller holds the lock.
func (w *worker) folder(parts string, feeds bool) map[int64]bool {
	if !feeds {
		return w.stored
	}
	if w.staged[parts] == nil {
		w.staged[parts] = map[int64]bool{}
	}
	return w.staged[parts]
}

// indices returns the items of a piece of work.
func (w *worker) indices(work contract.Work) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.among(work)
}

// among is indices for a caller that holds the lock.
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

// list stores items as a work list.
func (w *worker) list(runs contract.Runs) contract.Work {
	url := fmt.Sprintf("list-%d", len(w.lists))
	w.lists[url] = nil
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			w.lists[url] = append(w.lists[url], i)
		}
	}
	n := int64(len(w.lists[url]))
	return contract.Work{List: &contract.Source{URL: url, Index: url + ".index", Items: n}, End: n}
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
	if w.staged == nil {
		w.staged = map[string]map[int64]bool{}
	}
	w.lists = map[string][]int64{}
	name := func(n string) activity.RegisterOptions { return activity.RegisterOptions{Name: n} }
	env.RegisterActivityWithOptions(w.run, name(contract.RunChunk))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.EditionInput) (contract.Edition, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.asked++; in.Task == w.unknown {
			return contract.Edition{}, temporal.NewApplicationErrorWithOptions("no task", "bad_input", temporal.ApplicationErrorOptions{
				NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.FaultBadInput, Message: "no task"}}})
		}
		return contract.Edition{Edition: cmp.Or(w.edition, "e1"), Slots: w.likely}, nil
	}, name(contract.FindEdition))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.IndexInput) (contract.Source, error) {
		return contract.Source{URL: in.Source, Index: in.Index, Items: max(100, w.items)}, nil
	}, name(contract.IndexSource))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.PartsInput) (contract.Found, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		found := contract.Found{Claim: contract.Claim{ID: "claim", Store: "store"}, Stages: make([]contract.FoundStage, len(in.Stages)+1)}
		for at, parts := range in.Stages {
			found.Stages[at].Succeeded = int64(len(w.folder(parts, true)))
		}
		found.Stages[len(in.Stages)].Succeeded = int64(len(w.stored))
		for i := range in.Items {
			at := len(in.Stages)
			for at > 0 && !w.folder(in.Stages[at-1], true)[i] {
				at--
			}
			if !w.stored[i] {
				found.Stages[at].Rest.Runs.Add(i)
			}
		}
		for at := range found.Stages {
			if s := &found.Stages[at]; len(s.Rest.Runs) > 1000 {
				s.Rest = w.list(s.Rest.Runs)
			}
		}
		return found, nil
	}, name(contract.FindParts))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.ListInput) (contract.Work, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.list(in.Runs), nil
	}, name(contract.WriteList))
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.MergeInput) (contract.Merged, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lose != nil {
			w.lose(w.stored)
		}
		if n := int64(len(w.stored)); n != in.Items {
			return contract.Merged{Missing: fmt.Sprintf("%d of %d are stored", n, in.Items)}, nil
		}
		merged := contract.Merged{Items: in.Items, Counts: contract.Counts{Succeeded: in.Items}, Output: "file:///" + in.Output}
		for i := int64(0); i < in.Items && in.Items <= gpumux.InlineItems; i++ {
			merged.Results = append(merged.Results, gpumux.Result{Index: i, Value: json.RawMessage(fmt.Sprint(i * i))})
		}
		return merged, nil
	}, name(contract.MergeParts))
	workflows.Register(env)
}

func start(c contract.Chunk) int64 { return c.Runs[0].Start }
func end(c contract.Chunk) int64   { return c.Runs[len(c.Runs)-1].End - 1 }

func square(ctx workflow.Context, n int, in gpumux.MapInput) ([]workflows.Result[int], error) {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	in.Task = "square"
	mapped, err := workflows.Map[int, int](ctx, in, items)
	return mapped.Results, err
}

// environment fails a test when nothing happens for this long.
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
