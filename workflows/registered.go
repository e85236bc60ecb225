package workflows

import (
	"path"
	"regexp"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// Register registers gpumux.Map and its segments with a worker of the queue gpumux.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(registered, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
	r.RegisterWorkflowWithOptions(segment, workflow.RegisterOptions{Name: gpumux.SegmentWorkflow})
}

// registered is gpumux.Map: a map that any Temporal client can start with a JSON input.
func registered(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
	carry := in.Carry
	in.Carry = nil
	if err := in.Validate(); err != nil {
		return gpumux.Summary{}, invalid(err)
	}
	m := &mapping{in: in, started: workflow.Now(ctx), phase: gpumux.Indexing, asked: in.Output != ""}
	if carry != nil {
		m.started = carry.Started
	}
	if m.in.Output == "" {
		info := workflow.GetInfo(ctx)
		m.in.Output = path.Join("maps", clean(info.WorkflowExecution.ID), info.FirstRunID, "results.jsonl")
	}
	m.e = newEngine(workflow.GetInfo(ctx).WorkflowExecution.ID, m.in, max(0, in.Len()))
	m.e.shown = m.show
	if err := m.steer(ctx); err != nil {
		return gpumux.Summary{}, err
	}
	m.show(ctx)
	if err := m.prepare(ctx, carry); err != nil {
		return gpumux.Summary{}, plain(err)
	}
	m.phase = gpumux.Running
	m.show(ctx)
	if err := m.work(ctx, carry != nil); err != nil {
		return gpumux.Summary{}, err
	}
	if len(m.e.todo) > 0 {
		m.in.Carry = m.e.carry()
		m.in.Carry.Started, m.in.Carry.Segments = m.started, m.segments
		return gpumux.Summary{}, workflow.NewContinueAsNewError(ctx, gpumux.MapWorkflow, m.in)
	}
	return m.finish(ctx)
}

// mapping is one run of gpumux.Map.
type mapping struct {
	in      gpumux.MapInput
	e       *engine
	c       collector
	started time.Time
	phase   gpumux.Phase
	// asked says that the caller named the output, so that earlier runs may have left results there.
	asked bool
	// segments counts those that were started, running holds those that have not ended.
	segments int
	running  map[string]*running
	// changed wakes the coroutine that starts segments; the engine's own flag wakes the engine.
	changed bool
}

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// clean makes one path element of a workflow's ID.
func clean(id string) string {
	if id = strings.Trim(unclean.ReplaceAllString(id, "-"), "."); id != "" {
		return id
	}
	return "map"
}

// light runs a light activity on the queue gpumux, again and again until it works: a store that is full or away pauses the
// map and loses nothing.
func light(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: gpumux.Queue, StartToCloseTimeout: endless, HeartbeatTimeout: 3 * gpumux.HeartbeatTimeout, Summary: gpumux.Plain(summary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
		},
	})
}

// partsOf is the folder of a map's parts: beside its results file.
func partsOf(output string) string { return output[:strings.LastIndex(output, "/")+1] + "parts" }

// prepare finds the number of items and what is finished already.
func (m *mapping) prepare(ctx workflow.Context, carry *gpumux.Carry) error {
	m.e.parts = partsOf(m.in.Output)
	if carry != nil {
		m.resume(*carry)
		return nil
	}
	if m.in.Source != "" {
		var source gpumux.Source
		index := gpumux.IndexInput{Source: m.in.Source, Index: strings.TrimSuffix(m.e.parts, "parts") + "source.index"}
		err := workflow.ExecuteActivity(light(ctx, "index "+m.in.Source), gpumux.IndexSource, index).Get(ctx, &source)
		if err != nil {
			return err
		}
		m.e = m.sourced(source)
	}
	m.e.inline = !m.asked && m.in.Source == "" && m.e.total <= gpumux.InlineItems
	m.e.keep = m.c.keep(m.e.parts)
	if err := (&reduction{mapping: m}).known(ctx); err != nil {
		return err
	}
	if !m.asked {
		return nil
	}
	var found gpumux.Found
	err := workflow.ExecuteActivity(light(ctx, "find finished items"), gpumux.FindParts, gpumux.PartsInput{Parts: m.e.parts}).
		Get(ctx, &found)
	if err != nil {
		return err
	}
	m.e.without(found)
	return nil
}

func (m *mapping) sourced(source gpumux.Source) *engine {
	e := newEngine(m.e.id, m.in, source.Items)
	e.source, e.parts, e.shown, e.paused = &source, m.e.parts, m.e.shown, m.e.paused
	e.sizer.fixedWindow = m.e.sizer.fixedWindow
	return e
}

// finish merges the parts, or returns the results themselves when they stayed few and small.
func (m *mapping) finish(ctx workflow.Context) (gpumux.Summary, error) {
	summary := gpumux.Summary{
		Task: m.in.Task, Items: m.e.total, Succeeded: m.e.counts.succeeded, Failed: m.e.counts.failed,
		Faults: m.e.counts.faults, Busy: gpumux.Duration(m.e.busy), Chunks: m.e.chunks,
		Peak: m.e.peaks.Known(),
	}
	var results *gpumux.Source
	if m.e.inline && !m.c.spilled && int64(len(m.c.results)) == m.e.total {
		summary.Results = m.c.sorted()
	} else {
		m.phase = gpumux.Merging
		m.show(ctx)
		if err := m.c.spill(ctx, m.e.parts); err != nil {
			return summary, err
		}
		merge := gpumux.MergeInput{Parts: m.e.parts, Output: m.in.Output, Items: m.e.total}
		if m.in.Reduce != "" {
			merge.Index = strings.TrimSuffix(m.e.parts, "parts") + "results.index"
		}
		var merged gpumux.Merged
		if err := workflow.ExecuteActivity(light(ctx, "merge results"), gpumux.MergeParts, merge).Get(ctx, &merged); err != nil {
			return summary, plain(err)
		}
		summary.Succeeded, summary.Failed, summary.Faults = merged.Succeeded, merged.Failed, merged.Faults
		summary.Output = merged.Output
		results = &gpumux.Source{URL: merged.Output, Index: merge.Index, Items: merged.Items, Bytes: merged.Bytes}
	}
	if err := (&reduction{mapping: m}).finish(ctx, &summary, results); err != nil {
		return summary, err
	}
	m.phase = gpumux.Done
	m.show(ctx)
	summary.Elapsed = gpumux.Duration(workflow.Now(ctx).Sub(m.started))
	return summary, nil
}

func (m *mapping) resume(c gpumux.Carry) {
	e := resumed(m.e.id, m.in, c)
	e.parts, e.shown = m.e.parts, m.e.shown
	m.e, m.segments = e, c.Segments
}

// carry is the state of the engine for another workflow.
func (e *engine) carry() *gpumux.Carry {
	return &gpumux.Carry{
		Source: e.source, Todo: e.todo, Items: e.total, Succeeded: e.counts.succeeded, Failed: e.counts.failed,
		Faults: e.counts.faults, Chunks: e.chunks, Busy: gpumux.Duration(e.busy), Largest: e.sizer.largest,
		PerItem: gpumux.Duration(e.sizer.perItem), Slots: e.sizer.slots, Paused: e.paused, Window: e.sizer.fixedWindow,
		Peak: e.peaks.Known(),
	}
}

// resumed is an engine with the state that another workflow left.
func resumed(id string, in gpumux.MapInput, c gpumux.Carry) *engine {
	e := newEngine(id, in, c.Items)
	e.source, e.todo, e.paused = c.Source, c.Todo, c.Paused
	e.counts = counts{c.Succeeded, c.Failed, c.Faults}
	e.chunks, e.busy = c.Chunks, time.Duration(c.Busy)
	e.peaks.Merge(c.Peak)
	e.sizer.largest, e.sizer.perItem, e.sizer.fixedWindow = c.Largest, time.Duration(c.PerItem), c.Window
	e.sizer.beyond = c.Beyond
	e.sizer.meet(c.Slots)
	return e
}
