package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// Register registers gpumux.Map, its segments and gpumux.Describe with a worker of the
// queue gpumux.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(runMap, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
	r.RegisterWorkflowWithOptions(runSegment, workflow.RegisterOptions{Name: contract.SegmentWorkflow})
	r.RegisterWorkflowWithOptions(describe, workflow.RegisterOptions{Name: contract.DescribeWorkflow})
}

// describe is gpumux.Describe: what the worker of this workflow's queue offers.
func describe(ctx workflow.Context) (offer gpumux.Describe, err error) {
	asking := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: contract.HeartbeatTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err = workflow.ExecuteActivity(asking, contract.DescribeWorker).Get(ctx, &offer)
	return offer, err
}

// runMap is gpumux.Map: a map that any Temporal client can start with a JSON input.
func runMap(ctx workflow.Context, raw converter.RawValue) (gpumux.Summary, error) {
	in, carry, err := decodeInput(ctx, raw)
	if err != nil {
		return gpumux.Summary{}, invalid(err)
	}
	m := &mapping{in: in, started: workflow.Now(ctx), phase: gpumux.Indexing, asked: in.Output != ""}
	if carry != nil {
		m.started = carry.Started
	}
	if m.in.Output == "" {
		info := workflow.GetInfo(ctx)
		m.in.Output = path.Join("maps", pathElement(info.WorkflowExecution.ID), info.FirstRunID, "results.jsonl")
	}
	m.engine = newEngine(workflow.GetInfo(ctx).WorkflowExecution.ID, m.in, max(0, in.Len()))
	m.engine.onChange = m.show
	if err := m.steer(ctx); err != nil {
		return gpumux.Summary{}, err
	}
	m.show(ctx)
	if err := m.prepare(ctx, carry); err != nil {
		return gpumux.Summary{}, unwrapFault(err)
	}
	for {
		m.phase = gpumux.Running
		m.show(ctx)
		if err := m.work(ctx, carry != nil); err != nil {
			return gpumux.Summary{}, err
		}
		if len(m.engine.todo) > 0 {
			rest := m.engine.carry()
			rest.Started, rest.Segments, rest.Rounds = m.started, m.segmentCount, m.rounds
			rest.ReduceEdition, rest.Cached = m.reduceEdition, m.cached
			return gpumux.Summary{}, workflow.NewContinueAsNewError(ctx, gpumux.MapWorkflow, contract.Handoff{Input: contract.Input(m.in), Carry: rest})
		}
		summary, done, err := m.finish(ctx)
		if err != nil || done {
			return summary, err
		}
	}
}

// mapping is one run of gpumux.Map.
type mapping struct {
	in        gpumux.MapInput
	engine    *engine
	collected collector
	started   time.Time
	phase     gpumux.Phase
	// asked says that the caller named the output, so that earlier runs may have left
	// results there.
	asked bool
	// reduceEdition is that of the code of a reduce that is a task.
	reduceEdition string
	// cached is how many results came from the cache.
	cached int64
	// rounds is how often the merge has found items missing, lost what it said of them.
	rounds int
	lost   string
	// segmentCount counts those that were started, running holds those that have not ended.
	segmentCount int
	segmentsOpen map[string]*segmentRun
	// changed wakes the coroutine that starts segments; the engine's own flag wakes the
	// engine.
	changed bool
}

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// pathElement makes a path element of a workflow's ID.
func pathElement(id string) string {
	if id = strings.Trim(unclean.ReplaceAllString(id, "-"), "."); id != "" {
		return id
	}
	return "map"
}

// lightOptions are for light activities, on the queue gpumux. They are tried again until
// they work: a store that is full or away pauses the map and loses nothing.
func lightOptions(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: gpumux.Queue, StartToCloseTimeout: endless, HeartbeatTimeout: contract.HeartbeatTimeout, Summary: text.Plain(summary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: tooLarge,
		},
	})
}

// prepare finds the number of items and what is finished already.
func (m *mapping) prepare(ctx workflow.Context, carry *contract.Carry) error {
	m.engine.parts = contract.PartsOf(m.in.Output)
	if carry != nil {
		m.resume(*carry)
		return nil
	}
	if m.in.Source != "" {
		var source contract.Source
		index := contract.IndexInput{Source: m.in.Source, Index: contract.SourceIndexOf(m.engine.parts), Key: m.in.Key, Columns: m.in.Columns}
		err := workflow.ExecuteActivity(lightOptions(ctx, "index "+m.in.Source), contract.IndexSource, index).Get(ctx, &source)
		if err != nil {
			return err
		}
		m.engine = m.withSource(source)
	}
	m.engine.inline = !m.asked && m.in.Source == "" && !m.in.Cache && m.engine.total <= gpumux.InlineItems
	m.engine.onResults = m.collected.collect(m.engine)
	if err := m.findEdition(ctx); err != nil {
		return err
	}
	if err := m.checkReduce(ctx); err != nil {
		return err
	}
	if m.engine.inline {
		return nil
	}
	return m.findStored(ctx)
}

// findStored claims the folder of the map's parts and leaves as work only what is not
// stored there.
func (m *mapping) findStored(ctx workflow.Context) error {
	in := contract.PartsInput{Parts: m.engine.parts, Items: m.engine.total, Owner: m.owner(), Cache: m.cache()}
	var found contract.Found
	if err := workflow.ExecuteActivity(lightOptions(ctx, "find finished items"), contract.FindParts, in).Get(ctx, &found); err != nil {
		return err
	}
	m.engine.claim, m.engine.todo, m.engine.counts = found.Claim, nil, contract.Counts{}
	m.engine.counts.Add(found.Succeeded, found.Failed, found.Faults)
	m.cached += found.Cached
	if m.rounds == 0 {
		m.engine.allowFailures()
	}
	m.engine.requeue(ctx, contract.Piece{Work: found.Rest})
	return nil
}

// owner is whose results the parts are: all that decides what the values are.
func (m *mapping) owner() contract.Owner {
	o := contract.Owner{Task: m.in.Task, Edition: m.in.Edition, Items: m.engine.total, Key: m.in.Key, WithItem: m.in.WithItem}
	switch {
	case m.engine.source != nil:
		o.Input = fmt.Sprintf("%s, content %s", m.in.Source, m.engine.source.Hash)
	case m.in.Range != nil:
		o.Input = fmt.Sprintf("the range %d to %d", m.in.Range.Start, m.in.Range.End)
	default:
		hash := sha256.New()
		for _, item := range m.in.Items {
			hash.Write(append(item, '\n'))
		}
		o.Input = fmt.Sprintf("items that came with the map, content %x", hash.Sum(nil)[:16])
	}
	if m.in.Arg != nil {
		sum := sha256.Sum256(m.in.Arg)
		o.Arg = hex.EncodeToString(sum[:16])
	}
	return o
}

// cache is where the map's results may be found, or nil. Only a map without items has no
// edition.
func (m *mapping) cache() *contract.Cache {
	if !m.in.Cache || m.in.Edition == "" {
		return nil
	}
	owner := m.owner()
	owner.Input, owner.Items = "", 0
	return &contract.Cache{Owner: owner, Source: m.engine.source, Range: m.in.Range}
}

func (m *mapping) withSource(source contract.Source) *engine {
	e := newEngine(m.engine.id, m.in, source.Items)
	e.source, e.parts, e.onChange, e.paused = &source, m.engine.parts, m.engine.onChange, m.engine.paused
	e.sizer.Fixed = m.engine.sizer.Fixed
	return e
}

// mostRounds is how often items that are missing from the results run again.
const mostRounds = 3

// finish merges the parts, or returns the results themselves if they are few and small.
// If parts were lost or damaged, it is not done: their items are work again.
func (m *mapping) finish(ctx workflow.Context) (summary gpumux.Summary, done bool, err error) {
	summary = gpumux.Summary{
		Task: m.in.Task, Items: m.engine.total, Succeeded: m.engine.counts.Succeeded, Failed: m.engine.counts.Failed,
		Faults: m.engine.counts.Faults, Cached: m.cached, Busy: gpumux.Duration(m.engine.busy), Chunks: m.engine.chunks,
		Peak: m.engine.peaks.Known(), PassedOver: m.engine.passedOver(true),
	}
	if m.engine.inline && !m.collected.spilled && int64(len(m.collected.results)) == m.engine.total {
		summary.Results = m.collected.ordered()
	} else if done, err = m.merge(ctx, &summary); err != nil || !done {
		return summary, false, err
	}
	if err := m.reduce(ctx, &summary); err != nil {
		return summary, false, err
	}
	m.phase = gpumux.Done
	m.show(ctx)
	summary.Elapsed = gpumux.Duration(workflow.Now(ctx).Sub(m.started))
	return summary, true, nil
}

// merge makes the results file. It is not done if items are missing; they are work again
// then.
func (m *mapping) merge(ctx workflow.Context, summary *gpumux.Summary) (done bool, err error) {
	m.phase = gpumux.Merging
	m.show(ctx)
	if err := m.collected.spill(ctx, m.engine); err != nil {
		return false, unwrapFault(err)
	}
	in := contract.MergeInput{Parts: m.engine.parts, Output: m.in.Output, Items: m.engine.total, Claim: m.engine.claim, Cache: m.cache()}
	var merged contract.Merged
	if err := workflow.ExecuteActivity(lightOptions(ctx, "merge results"), contract.MergeParts, in).Get(ctx, &merged); err != nil {
		return false, unwrapFault(err)
	}
	if merged.Missing != "" {
		if m.rounds++; m.rounds > mostRounds {
			return false, faultError(fmt.Sprintf("%s, although it ran %d times; do all workers share one store that keeps what it is given?",
				merged.Missing, m.rounds), nil)
		}
		m.lost = merged.Missing
		m.engine.inline = false
		return false, unwrapFault(m.findStored(ctx))
	}
	summary.Succeeded, summary.Failed, summary.Faults = merged.Succeeded, merged.Failed, merged.Faults
	summary.Output = merged.Output
	return true, nil
}

func (m *mapping) resume(c contract.Carry) {
	e := resumeEngine(m.engine.id, m.in, c)
	e.parts, e.onChange = m.engine.parts, m.engine.onChange
	m.engine, m.segmentCount, m.rounds, m.reduceEdition, m.cached = e, c.Segments, c.Rounds, c.ReduceEdition, c.Cached
}

// carry is the state of the engine for another workflow.
func (e *engine) carry() *contract.Carry {
	return &contract.Carry{
		Source: e.source, Claim: e.claim, Todo: e.todo, Items: e.total, Succeeded: e.counts.Succeeded, Failed: e.counts.Failed,
		Faults: e.counts.Faults, Chunks: e.chunks, Busy: gpumux.Duration(e.busy), Largest: e.sizer.Largest,
		PerItem: gpumux.Duration(e.sizer.PerItem), Slots: e.sizer.Slots, Paused: e.paused, Window: e.sizer.Fixed,
		Peak: e.peaks.Known(), Passed: e.carryPassed(), MayFail: e.mayFail(e.counts.Failed),
		Contact: e.contact,
	}
}

// resumeEngine is an engine with the state that another workflow left.
func resumeEngine(id string, in gpumux.MapInput, c contract.Carry) *engine {
	e := newEngine(id, in, c.Items)
	e.source, e.claim, e.todo, e.paused, e.contact = c.Source, c.Claim, c.Todo, c.Paused, c.Contact
	e.resumePassed(c.Passed)
	e.counts = contract.Counts{Succeeded: c.Succeeded, Failed: c.Failed, Faults: c.Faults}
	if e.most = -1; c.MayFail != nil {
		e.most = c.Failed + *c.MayFail
	}
	e.chunks, e.busy = c.Chunks, time.Duration(c.Busy)
	e.peaks.Merge(c.Peak)
	e.sizer.Largest, e.sizer.PerItem, e.sizer.Fixed = c.Largest, time.Duration(c.PerItem), c.Window
	e.sizer.Beyond = c.Beyond
	e.sizer.LearnSlots(c.Slots)
	return e
}
