package workflowstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Tasks holds the functions that stand for tasks in an environment. Its methods may be
// called from any goroutine.
type Tasks struct {
	mu     sync.Mutex
	tasks  map[string]func(json.RawMessage) (json.RawMessage, error)
	leases map[string]chan struct{} // closed when a lease ends, by queue
}

// New registers the stand-ins for workflows.Map and workflows.WithSlot with the
// environment. They know no task before Handle. For MapSource mock gpumux.MapWorkflow with
// env.OnWorkflow.
func New(env *testsuite.TestWorkflowEnvironment) *Tasks {
	t := &Tasks{tasks: map[string]func(json.RawMessage) (json.RawMessage, error){}, leases: map[string]chan struct{}{}}
	env.RegisterActivityWithOptions(t.chunk, activity.RegisterOptions{Name: contract.RunChunk})
	t.registerLeases(env)
	env.RegisterWorkflowWithOptions(unmocked, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
	return t
}

// Handle makes a function stand for a task. Its error is the item's fault: a
// *gpumux.Fault as it is, any other as task_error.
func Handle[In, Out any](t *Tasks, task string, f func(In) (Out, error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks[task] = func(item json.RawMessage) (json.RawMessage, error) {
		var in In
		if err := json.Unmarshal(item, &in); err != nil {
			return nil, fmt.Errorf("the item %.200s does not fit %T: %w", item, in, err)
		}
		out, err := f(in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// chunk stands for gpumux.RunChunk.
func (t *Tasks) chunk(_ context.Context, c contract.Chunk) (contract.ChunkResult, error) {
	var indices []int64
	for _, run := range c.Runs {
		for index := run.Start; index < run.End; index++ {
			indices = append(indices, index)
		}
	}
	results, err := t.each(c.Task, c.Items)
	if err != nil {
		return contract.ChunkResult{}, err
	}
	answer := contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Results: results}
	answer.Succeeded, answer.Failed, answer.Faults = count(results)
	for i := range results {
		results[i].Index = indices[i]
	}
	return answer, nil
}

// unmocked stands for gpumux.Map, so that env.OnWorkflow knows its name.
func unmocked(workflow.Context, gpumux.MapInput) (gpumux.Summary, error) {
	return gpumux.Summary{}, refused("mock " + gpumux.MapWorkflow + " with env.OnWorkflow")
}

// each runs a task over items.
func (t *Tasks) each(task string, items []json.RawMessage) ([]gpumux.Result, error) {
	t.mu.Lock()
	f, known := t.tasks[task]
	names := slices.Sorted(maps.Keys(t.tasks))
	t.mu.Unlock()
	if !known {
		return nil, refused(fmt.Sprintf("no stand-in for task %q; there are %s", task, strings.Join(names, ", ")))
	}
	results := make([]gpumux.Result, len(items))
	for i, item := range items {
		results[i].Index = int64(i)
		value, err := f(item)
		var fault *gpumux.Fault
		switch {
		case err == nil:
			results[i].Value = value
		case errors.As(err, &fault):
			results[i].Fault = fault
		default:
			results[i].Fault = &gpumux.Fault{Kind: gpumux.TaskError, Op: "run", Task: task, Message: err.Error()}
		}
	}
	return results, nil
}

func count(results []gpumux.Result) (succeeded, failed int64, faults map[gpumux.Kind]int64) {
	for _, r := range results {
		if r.Fault == nil {
			succeeded++
			continue
		}
		if faults == nil {
			faults = map[gpumux.Kind]int64{}
		}
		failed++
		faults[r.Fault.Kind]++
	}
	return succeeded, failed, faults
}

// refused ends the map, as a worker's bad_input does.
func refused(what string) error {
	fault := gpumux.Fault{Kind: gpumux.BadInput, Op: "start", Message: what}
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{fault},
	})
}
