package workflowstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// Tasks has the stand-ins of an environment. Its methods may be called from any
// goroutine.
type Tasks struct {
	mu      sync.Mutex
	tasks   map[string]func(json.RawMessage) (json.RawMessage, error)
	sources map[string][]json.RawMessage
	results map[string][]gpumux.Result
	inputs  []gpumux.MapInput
}

// New registers the stand-ins for workflows.Map, MapSource and Page with the environment.
// They know no task before Handle.
func New(env *testsuite.TestWorkflowEnvironment) *Tasks {
	t := &Tasks{tasks: map[string]func(json.RawMessage) (json.RawMessage, error){}, sources: map[string][]json.RawMessage{},
		results: map[string][]gpumux.Result{}}
	env.RegisterActivityWithOptions(t.chunk, activity.RegisterOptions{Name: contract.RunChunk})
	env.RegisterActivityWithOptions(t.edition, activity.RegisterOptions{Name: contract.FindEdition})
	env.RegisterActivityWithOptions(t.page, activity.RegisterOptions{Name: contract.ReadPage})
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

// Fail makes a fault end every map of a task, such as the FaultTimeout of
// Op "start" of a map that nobody serves for its PoolTimeout.
func (t *Tasks) Fail(task string, fault gpumux.Fault) {
	Handle(t, task, func(json.RawMessage) (any, error) { return nil, end{&fault} })
}

// end is the fault of a whole map.
type end struct{ *gpumux.Fault }

// Source makes items stand for a file that a MapInput names as its source. Those of a
// Parquet file are objects; the Columns of a map leave them as they are.
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
func (t *Tasks) chunk(_ context.Context, c contract.Chunk) (answer contract.ChunkResult, err error) {
	answer.Covered, answer.Ran = c.Len(), c.Len()
	if answer.Results, err = t.each(c.Task, c.Items); err != nil {
		return contract.ChunkResult{}, err
	}
	for i := range answer.Results {
		if r := &answer.Results[i]; len(r.Value) > contract.LargestResult {
			r.Value, r.Fault = nil, contract.TooLarge(c.Task, len(r.Value))
		}
	}
	answer.Counts = count(answer.Results)
	for i := range answer.Results {
		r := &answer.Results[i]
		r.Index = c.Runs.Take(1, 1)[0].Start
		if r.Key, r.Item = contract.Label(c.Items[i], c.Key, c.WithItem); r.Fault != nil {
			answer.Recent = append(answer.Recent, *r)
		}
	}
	return answer, nil
}

// run stands for gpumux.Map.
func (t *Tasks) run(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
	if err := in.Validate(); err != nil {
		return gpumux.Summary{}, refused(err.Error())
	}
	items, keys, err := t.items(in)
	if err != nil {
		return gpumux.Summary{}, refused(err.Error())
	}
	results, stages, err := t.through(in, items)
	if err != nil {
		return gpumux.Summary{}, err
	}
	for i := range results {
		results[i].Key, results[i].Item = contract.Label(items[i], in.Key, in.WithItem)
		if results[i].Key == nil && keys != nil {
			results[i].Key = keys[i]
		}
	}
	summary := gpumux.Summary{Task: in.Name(), Items: int64(len(items)), Chunks: int64(len(stages))}
	counts := count(results)
	summary.Succeeded, summary.Failed, summary.Faults = counts.Succeeded, counts.Failed, counts.Faults
	if len(stages) > 1 {
		summary.Stages = stages
	}
	if len(results) <= gpumux.InlineItems {
		summary.Results = results
	}
	summary.Output = "mem:///" + cmp.Or(in.Output, path.Join("maps", workflow.GetInfo(ctx).WorkflowExecution.ID, "results.jsonl"))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results[summary.Output] = results
	return summary, nil
}

// through takes items through the stages of a map. A fault ends the way of its item.
func (t *Tasks) through(in gpumux.MapInput, items []json.RawMessage) (results []gpumux.Result, stages []gpumux.StageProgress, err error) {
	results = make([]gpumux.Result, len(items))
	for i, item := range items {
		results[i] = gpumux.Result{Index: int64(i), Value: item}
	}
	for _, step := range in.Steps() {
		at, inputs := []int{}, []json.RawMessage{}
		for i, r := range results {
			if r.Fault == nil {
				at, inputs = append(at, i), append(inputs, r.Value)
			}
		}
		values, err := t.each(step.Task, inputs)
		if err != nil {
			return nil, nil, err
		}
		for i, r := range values {
			results[at[i]].Value, results[at[i]].Fault = r.Value, r.Fault
		}
		counts := count(values)
		stages = append(stages, gpumux.StageProgress{Task: step.Task, Ladder: step.Rungs(), Chunks: 1, Succeeded: counts.Succeeded, Failed: counts.Failed})
	}
	return results, stages, nil
}

// items notes an input and returns its items, with the keys that results give them.
//
//workflowcheck:ignore
func (t *Tasks) items(in gpumux.MapInput) (items, keys []json.RawMessage, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = append(t.inputs, in)
	items, known := t.sources[in.Source]
	output, results, failed := names.CutResults(in.Source)
	switch {
	case in.Range != nil:
		for n := in.Range.Start; n < in.Range.End; n++ {
			items = append(items, strconv.AppendInt(nil, n, 10))
		}
		return items, nil, nil
	case in.Source == "":
		return in.Items, nil, nil
	case results && t.results[output] != nil:
		items, keys, err = itemsOf(t.results[output], failed)
	case !known:
		return nil, nil, fmt.Errorf("there is no source %q; make one with Tasks.Source", in.Source)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", in.Source, err)
	}
	return items, keys, nil
}

// itemsOf are the items that the results of another map are: the values, or the items
// that failed.
func itemsOf(results []gpumux.Result, failed bool) (items, keys []json.RawMessage, err error) {
	for _, r := range results {
		switch {
		case (r.Fault != nil) != failed:
			continue
		case !failed:
			items = append(items, r.Value)
		case r.Item == nil:
			return nil, nil, fmt.Errorf("item %d failed, and its result lacks it; run the map that wrote it with withItem", r.Index)
		default:
			items = append(items, r.Item)
		}
		keys = append(keys, r.Key)
	}
	return items, keys, nil
}

// each runs a task over items.
//
//workflowcheck:ignore
func (t *Tasks) each(task string, items []json.RawMessage) (results []gpumux.Result, err error) {
	defer func() {
		if p := recover(); p != nil { // else each of many tries has its stack
			err = refused(fmt.Sprintf("the stand-in for task %s panicked: %v\n%s", task, p, debug.Stack()))
		}
	}()
	t.mu.Lock()
	f, known := t.tasks[task]
	names := slices.Sorted(maps.Keys(t.tasks))
	t.mu.Unlock()
	if !known {
		return nil, refused(fmt.Sprintf("no stand-in for task %q; there are %s", task, strings.Join(names, ", ")))
	}
	results = make([]gpumux.Result, len(items))
	for i, item := range items {
		value, err := f(item)
		results[i] = gpumux.Result{Index: int64(i), Value: value}
		if whole, ends := errors.AsType[end](err); ends {
			return nil, failed(whole.Fault)
		}
		if err != nil && !errors.As(err, &results[i].Fault) {
			results[i].Fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Task: task, Message: err.Error()}
		}
	}
	return results, nil
}

func count(results []gpumux.Result) (counts contract.Counts) {
	for _, r := range results {
		if r.Fault == nil {
			counts.Succeeded++
			continue
		}
		counts.Add(contract.Counts{Failed: 1, Faults: map[gpumux.FaultKind]int64{r.Fault.Kind: 1}})
	}
	return counts
}

// edition stands for gpumux.FindEdition.
func (t *Tasks) edition(_ context.Context, in contract.EditionInput) (contract.Edition, error) {
	_, err := t.each(in.Task, nil)
	return contract.Edition{Edition: "test"}, err
}

// page stands for gpumux.ReadPage. Positions are indices of results.
func (t *Tasks) page(_ context.Context, in contract.PageInput) (page contract.Page, err error) {
	if err := in.Validate(); err != nil {
		return page, refused(err.Error())
	}
	all := t.Results(in.Output)
	if all == nil || in.From > int64(len(all)) {
		return page, refused(fmt.Sprintf("no map of this test has results at %d of %q", in.From, in.Output))
	}
	if page.Results = all[in.From:]; in.Limit > 0 && in.Limit < len(page.Results) {
		page.Results, page.Next = page.Results[:in.Limit], in.From+int64(in.Limit)
	}
	return page, nil
}

// failed is the error that ends a map or a call, as that of a worker.
func failed(fault *gpumux.Fault) error {
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{*fault},
	})
}

// refused ends the map, as a worker's bad_input does.
func refused(what string) error {
	return failed(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: what})
}
