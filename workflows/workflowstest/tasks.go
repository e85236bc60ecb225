package workflowstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// Tasks has the stand-ins of an environment. Its methods may be called from any
// goroutine.
type Tasks struct {
	mu      sync.Mutex
	tasks   map[string]func(json.RawMessage) (json.RawMessage, error)
	sources map[string][]json.RawMessage
	results map[string][]gpumux.Result
	inputs  []gpumux.MapInput
	leases  map[string]chan struct{} // closed when a lease ends, by queue
}

// New registers the stand-ins for workflows.Map, MapSource, Page and WithSlot with the
// environment. They know no task before Handle.
func New(env *testsuite.TestWorkflowEnvironment) *Tasks {
	t := &Tasks{tasks: map[string]func(json.RawMessage) (json.RawMessage, error){}, sources: map[string][]json.RawMessage{},
		results: map[string][]gpumux.Result{}, leases: map[string]chan struct{}{}}
	env.RegisterActivityWithOptions(t.chunk, activity.RegisterOptions{Name: contract.RunChunk})
	t.registerLeases(env)
	t.registerResults(env)
	env.RegisterWorkflowWithOptions(t.run, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
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

// Fail makes a fault end every map and every call of a task, such as the FaultTimeout of
// Op "start" of a map that nobody serves for its PoolTimeout.
func (t *Tasks) Fail(task string, fault gpumux.Fault) {
	Handle(t, task, func(json.RawMessage) (any, error) { return nil, end{&fault} })
}

// end is the fault of a whole map.
type end struct{ *gpumux.Fault }

// Source makes items stand for a file that a MapInput names as its source. Those of a
// Parquet or Arrow file are objects, with all columns.
func (t *Tasks) Source(name string, items ...any) error {
	var list []json.RawMessage
	for i, item := range items {
		encoded, err := json.Marshal(item)
		if err != nil {
			return fmt.Errorf("item %d of source %s is not JSON: %w", i, name, err)
		}
		list = append(list, encoded)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[name] = list
	return nil
}

// Results returns the results of a map whose summary names this output.
func (t *Tasks) Results(output string) []gpumux.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.results[output])
}

// Inputs are those that MapSource was called with, in order.
func (t *Tasks) Inputs() []gpumux.MapInput {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.inputs)
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
		results[i].Key, results[i].Item = contract.Label(c.Items[i], c.Key, c.WithItem)
		if results[i].Fault != nil {
			answer.Recent = append(answer.Recent, results[i])
		}
	}
	return answer, nil
}

// run stands for gpumux.Map.
func (t *Tasks) run(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
	if err := in.Validate(); err != nil {
		return gpumux.Summary{}, refused(err.Error())
	}
	if in.Reduce != "" {
		if _, err := t.each(in.Reduce, nil); err != nil {
			return gpumux.Summary{}, err
		}
	}
	t.mu.Lock()
	t.inputs = append(t.inputs, in)
	items, known := t.sources[in.Source]
	var keys []json.RawMessage
	var err error
	if output, results, failed := names.CutResults(in.Source); results {
		items, keys, err = itemsOf(t.results[output], failed)
		known = t.results[output] != nil
	}
	t.mu.Unlock()
	if err != nil {
		return gpumux.Summary{}, refused(fmt.Sprintf("%s: %v", in.Source, err))
	}
	items, err = columnsOf(items, in.Columns)
	if err != nil {
		return gpumux.Summary{}, refused(fmt.Sprintf("%s: %v", in.Source, err))
	}
	switch {
	case in.Range != nil:
		for n := in.Range.Start; n < in.Range.End; n++ {
			items = append(items, strconv.AppendInt(nil, n, 10))
		}
	case in.Source == "":
		items = in.Items
	case !known:
		return gpumux.Summary{}, refused(fmt.Sprintf("there is no source %q; make one with Tasks.Source", in.Source))
	}
	results, err := t.each(in.Task, items)
	if err != nil {
		return gpumux.Summary{}, err
	}
	for i := range results {
		results[i].Key, results[i].Item = contract.Label(items[i], in.Key, in.WithItem)
		if results[i].Key == nil && keys != nil {
			results[i].Key = keys[i]
		}
	}
	summary := gpumux.Summary{Task: in.Task, Items: int64(len(items)), Chunks: 1}
	summary.Succeeded, summary.Failed, summary.Faults = count(results)
	if in.Reduce != "" {
		summary.Reduced, summary.ReduceFault = t.reduce(in.Reduce, results)
	}
	if len(results) <= gpumux.InlineItems {
		summary.Results = results
	}
	output := in.Output
	if output == "" {
		output = path.Join("maps", workflow.GetInfo(ctx).WorkflowExecution.ID, "results.jsonl")
	}
	summary.Output = "mem:///" + output
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results[summary.Output] = results
	return summary, nil
}

// columnsOf are items with these columns alone, or with all where there are none.
//
//workflowcheck:ignore
func columnsOf(items []json.RawMessage, columns []string) ([]json.RawMessage, error) {
	if len(columns) == 0 {
		return items, nil
	}
	var chosen []json.RawMessage
	for _, item := range items {
		var row []string
		for _, name := range columns {
			if err := text.CheckField(item, name); err != nil {
				return nil, fmt.Errorf("columns: %w", err)
			}
			quoted, _ := json.Marshal(name) // a string always encodes
			row = append(row, fmt.Sprintf("%s:%s", quoted, text.FieldOf(item, name)))
		}
		chosen = append(chosen, json.RawMessage("{"+strings.Join(row, ",")+"}"))
	}
	return chosen, nil
}

// itemsOf are the items that the results of another map are: the values, or the items
// that failed.
func itemsOf(results []gpumux.Result, failed bool) (items, keys []json.RawMessage, err error) {
	for _, r := range results {
		item := r.Value
		switch {
		case (r.Fault != nil) != failed:
			continue
		case failed && r.Item == nil:
			return nil, nil, fmt.Errorf("item %d failed, and its result lacks it; run the map that wrote it with withItem", r.Index)
		case failed:
			item = r.Item
		}
		items, keys = append(items, item), append(keys, r.Key)
	}
	return items, keys, nil
}

// each runs a task over items.
//
//workflowcheck:ignore
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
		var all end
		switch {
		case errors.As(err, &all):
			return nil, failed(all.Fault)
		case err == nil:
			results[i].Value = value
		case errors.As(err, &fault):
			results[i].Fault = fault
		default:
			results[i].Fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Task: task, Message: err.Error()}
		}
	}
	return results, nil
}

func count(results []gpumux.Result) (succeeded, failed int64, faults map[gpumux.FaultKind]int64) {
	for _, r := range results {
		if r.Fault == nil {
			succeeded++
			continue
		}
		if faults == nil {
			faults = map[gpumux.FaultKind]int64{}
		}
		failed++
		faults[r.Fault.Kind]++
	}
	return succeeded, failed, faults
}
