package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/payload"
)

// mapping is one run of gpumux.Map.
type mapping struct {
	in        gpumux.MapInput
	engine    *engine
	collected collector
	started   time.Time
	phase     gpumux.Phase
	// asked says that the caller named the output, so that earlier runs may have left
	// results there.
	asked    bool
	reducing reducing
	// cached is how many results came from the cache.
	cached int64
	// rounds is how often the merge has found items missing, lost the last message about
	// them.
	rounds   int
	lost     string
	segments segments
}

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// pathElement makes a path element of a workflow's ID.
func pathElement(id string) string {
	if id = strings.Trim(unclean.ReplaceAllString(id, "-"), "."); id != "" {
		return id
	}
	return "map"
}

// listen registers the query progress and the updates pause, resume and window.
func (m *mapping) listen(ctx workflow.Context) error {
	steer := func(ctx workflow.Context, to steering) {
		m.engine.steer(to)
		m.segments.steer(ctx, to)
		m.show(ctx)
	}
	set := func(paused bool) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			steer(ctx, steering{Paused: paused, Window: m.engine.sizer.Fixed})
			return nil
		}
	}
	return errors.Join(
		workflow.SetQueryHandlerWithOptions(ctx, gpumux.ProgressQuery, func() (gpumux.Progress, error) {
			return m.progress(workflow.Now(ctx)), nil
		}, workflow.QueryHandlerOptions{Description: "How far the map is: items, failures, chunks in flight, rate. Takes no argument."}),
		workflow.SetUpdateHandlerWithOptions(ctx, gpumux.PauseUpdate, set(true), workflow.UpdateHandlerOptions{
			Description: "Stops handing out chunks; those in flight finish. Takes no argument.",
		}),
		workflow.SetUpdateHandlerWithOptions(ctx, gpumux.ResumeUpdate, set(false), workflow.UpdateHandlerOptions{
			Description: "Ends a pause. Takes no argument.",
		}),
		workflow.SetUpdateHandlerWithOptions(ctx, gpumux.WindowUpdate, func(ctx workflow.Context, raw converter.RawValue) error {
			window, err := windowOf(raw)
			if err == nil {
				steer(ctx, steering{Paused: m.engine.paused, Window: window})
			}
			return err
		}, workflow.UpdateHandlerOptions{
			Description: fmt.Sprintf("Sets how many chunks are in flight. Takes a number, 0 (automatic) to %d.", gpumux.MaxWindow),
			Validator:   func(raw converter.RawValue) error { _, err := windowOf(raw); return err },
		}))
}

// windowOf reads the argument of the update "window".
func windowOf(raw converter.RawValue) (window int, err error) {
	if err := payload.Decode(raw, &window); err != nil {
		return 0, err
	}
	bad := gpumux.InputError{What: "window"}
	if window < 0 || window > gpumux.MaxWindow {
		bad.Add("input", "%d is outside 0 (automatic) to %d", window, gpumux.MaxWindow)
	}
	return window, bad.Err()
}

// prepare finds the number of items and what is finished already.
func (m *mapping) prepare(ctx workflow.Context, carry *contract.Carry) error {
	m.engine.parts = contract.PartsOf(m.in.Output)
	if carry != nil {
		m.engine.resume(*carry)
		m.segments.count, m.rounds, m.reducing.edition, m.cached = carry.Segments, carry.Rounds, carry.ReduceEdition, carry.Cached
		return nil
	}
	if m.in.Source != "" {
		var source contract.Source
		index := contract.IndexInput{Source: m.in.Source, Index: contract.SourceIndexOf(m.engine.parts), Key: m.in.Key, Columns: m.in.Columns}
		err := workflow.ExecuteActivity(housekeeping(ctx, "index "+m.in.Source), contract.IndexSource, index).Get(ctx, &source)
		if err != nil {
			return err
		}
		m.engine.source = &source
		m.engine.begin(source.Items)
	}
	m.engine.inline = !m.asked && m.in.Source == "" && !m.in.Cache && m.engine.total <= gpumux.InlineItems
	m.collected.engine, m.engine.onResults = m.engine, m.collected.collect
	if err := m.findEdition(ctx); err != nil {
		return err
	}
	if err := m.reducing.check(ctx); err != nil {
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
	if err := workflow.ExecuteActivity(housekeeping(ctx, "find finished items"), contract.FindParts, in).Get(ctx, &found); err != nil {
		return err
	}
	m.engine.claim, m.engine.todo, m.engine.tally.counts = found.Claim, nil, contract.Counts{}
	m.engine.tally.counts.Add(found.Succeeded, found.Failed, found.Faults)
	m.cached += found.Cached
	if m.rounds == 0 {
		m.engine.tally.allow(m.in.MaxFailures.Of(m.engine.total))
	}
	m.engine.requeue(ctx, contract.Piece{Work: found.Rest})
	return nil
}

// owner is all that decides the values: parts with another owner are of another map.
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

// maxRounds is how often items that are missing from the results run again.
const maxRounds = 3

// finish merges the parts, or puts the results into the summary if they are few and
// small. It is not done if parts were lost or damaged: their items are work again.
func (m *mapping) finish(ctx workflow.Context) (summary gpumux.Summary, done bool, err error) {
	summary = m.engine.summary()
	summary.Cached = m.cached
	if m.engine.inline && !m.collected.spilled && int64(len(m.collected.results)) == m.engine.total {
		summary.Results = m.collected.ordered()
	} else if done, err = m.merge(ctx, &summary); err != nil || !done {
		return summary, false, err
	}
	if m.in.Reduce != "" {
		m.phase = gpumux.PhaseReducing
		m.show(ctx)
		if err := m.reducing.run(ctx, &summary); err != nil {
			return summary, false, err
		}
	}
	m.phase = gpumux.PhaseDone
	m.show(ctx)
	summary.Elapsed = gpumux.Duration(workflow.Now(ctx).Sub(m.started))
	return summary, true, nil
}

// merge makes the results file. It is not done if items are missing; they are work again
// then.
func (m *mapping) merge(ctx workflow.Context, summary *gpumux.Summary) (done bool, err error) {
	m.phase = gpumux.PhaseMerging
	m.show(ctx)
	if err := m.collected.spill(ctx); err != nil {
		return false, unwrapFault(err)
	}
	in := contract.MergeInput{Parts: m.engine.parts, Output: m.in.Output, Items: m.engine.total, Claim: m.engine.claim, Cache: m.cache()}
	var merged contract.Merged
	if err := workflow.ExecuteActivity(housekeeping(ctx, "merge results"), contract.MergeParts, in).Get(ctx, &merged); err != nil {
		return false, unwrapFault(err)
	}
	if merged.Missing != "" {
		if m.rounds++; m.rounds > maxRounds {
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

// findEdition finds the edition of the task's code that the whole map runs with: the one
// that its input names, or that of the first worker of its pool that answers.
func (m *mapping) findEdition(ctx workflow.Context) error {
	if m.in.Edition == "" && m.engine.total > 0 {
		m.phase = gpumux.PhaseRunning // it waits for a slot, as a chunk would
		m.show(ctx)
		found, err := askEdition(ctx, m.engine, m.in.Task)
		if err != nil {
			return err
		}
		m.in.Edition, m.engine.sizer.Likely, m.engine.contact = found.Edition, found.Slots, found.Contact
		m.engine.sizer.Sparing = found.Held
	}
	m.engine.in.Edition = m.in.Edition
	return nil
}

// failed is how many items have failed, with those of segments under way as far as they
// have told.
func (m *mapping) failed() int64 {
	failed := m.engine.tally.counts.Failed
	for _, id := range sortedKeys(m.segments.open) {
		failed += m.segments.open[id].last.Failed
	}
	return failed
}

func (m *mapping) progress(now time.Time) gpumux.Progress {
	p := gpumux.Progress{
		Task: m.in.Task, Phase: m.phase, Items: m.engine.total, Succeeded: m.engine.tally.counts.Succeeded, Failed: m.engine.tally.counts.Failed,
		Faults: m.engine.tally.counts.Faults, InFlight: m.engine.inFlight, Window: m.engine.sizer.Whole(), Chunk: int(m.engine.sizer.Largest),
		Chunks: m.engine.tally.chunks, Paused: m.engine.paused, Started: m.started, Recent: m.engine.tally.recent, Output: m.in.Output,
		Peak: m.engine.tally.peaks.Known(), Waiting: m.engine.todo.Waiting(now), Lost: m.lost, PassedOver: m.engine.ladder.passedOver(false),
	}
	p.Backlog, p.ItemTime = m.backlog(), gpumux.Duration(m.engine.sizer.PerItem)
	m.segments.addTo(&p)
	if elapsed := now.Sub(m.started).Seconds(); elapsed > 0 {
		p.Rate = float64(p.Succeeded+p.Failed) / elapsed
	}
	return p
}

// show sets the Markdown that the Web UI shows as the workflow's current details.
func (m *mapping) show(ctx workflow.Context) {
	p := m.progress(workflow.Now(ctx))
	workflow.SetCurrentDetails(ctx, contract.Details(p, m.in.Rungs()))
	// To set an attribute that the server lacks would stop the workflow. A run that was
	// started with it shows that the server has it.
	told, has := workflow.GetTypedSearchAttributes(ctx).GetInt64(searchFailed)
	if has && (told == 0 && p.Failed > 0 || m.phase == gpumux.PhaseDone && told != p.Failed) {
		if err := workflow.UpsertTypedSearchAttributes(ctx, searchFailed.ValueSet(p.Failed)); err != nil {
			workflow.GetLogger(ctx).Warn("the number of failed items cannot be searched for", "error", err)
		}
	}
}
