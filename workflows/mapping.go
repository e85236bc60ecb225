package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// mapping is one run of gpumux.Map.
type mapping struct {
	in      gpumux.MapInput
	engine  *engine
	started time.Time
	phase   gpumux.Phase
	// rounds counts the merges that found items missing, lost is the last one's message.
	rounds   int
	lost     string
	segments segments
}

func (m *mapping) listen(ctx workflow.Context) error {
	set := func(paused bool) func(workflow.Context, converter.RawValue) error {
		return func(ctx workflow.Context, _ converter.RawValue) error {
			to := steering{Paused: paused}
			m.engine.steer(to)
			m.segments.steer(ctx, to)
			m.show(ctx)
			return nil
		}
	}
	none := func(raw converter.RawValue) error { return contract.Absent(raw, "is not taken; give no argument") }
	return errors.Join(
		workflow.SetQueryHandlerWithOptions(ctx, gpumux.ProgressQuery, func(raw converter.RawValue) (gpumux.Progress, error) {
			return m.progress(workflow.Now(ctx)), none(raw)
		}, workflow.QueryHandlerOptions{Description: "How far the map is: items, failures, chunks in flight, rate. Takes no argument."}),
		workflow.SetUpdateHandlerWithOptions(ctx, gpumux.PauseUpdate, set(true), workflow.UpdateHandlerOptions{
			Description: "Stops handing out chunks; those in flight finish. Takes no argument.",
			Validator:   none,
		}),
		workflow.SetUpdateHandlerWithOptions(ctx, gpumux.ResumeUpdate, set(false), workflow.UpdateHandlerOptions{
			Description: "Ends a pause. Takes no argument.",
			Validator:   none,
		}))
}

func (m *mapping) prepare(ctx workflow.Context, carry *contract.Carry) error {
	if carry != nil {
		m.engine.place(m.in, carry.Items, carry.Source)
		m.engine.resume(*carry)
		m.segments.count, m.rounds = carry.Segments, carry.Rounds
		return nil
	}
	if m.in.Source != "" {
		var source contract.Source
		index := contract.IndexInput{Source: m.in.Source, Index: contract.SourceIndexOf(contract.PartsOf(m.in.Output)), Key: m.in.Key, Columns: m.in.Columns}
		err := contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "index "+m.in.Source), contract.IndexSource, index), &source)
		if err != nil {
			return err
		}
		m.engine.source = &source
		m.engine.begin(source.Items)
	}
	if err := m.findEditions(ctx); err != nil {
		return err
	}
	m.engine.place(m.in, m.engine.total, m.engine.source)
	return m.findStored(ctx)
}

// place gives the stages the folders of their results, whose names depend on what all
// stages up to each are.
func (e *engine) place(in gpumux.MapInput, items int64, source *contract.Source) {
	for at, s := range e.stages {
		if s.parts = contract.PartsOf(in.Output); s.next() != nil {
			until := in
			until.Stages = in.Stages[:at+1]
			s.parts = contract.StageFolder(in.Output, at, contract.OwnerOf(until, items, source))
		}
	}
}

// findStored claims the folder of the map's parts and leaves as work only what is not
// stored there, and in the folders of its stages.
func (m *mapping) findStored(ctx workflow.Context) error {
	e := m.engine
	in := contract.PartsInput{Parts: e.last().parts, Items: e.total, Owner: contract.OwnerOf(m.in, e.total, e.source)}
	for _, s := range e.stages[:len(e.stages)-1] {
		in.Stages = append(in.Stages, s.parts)
	}
	var found contract.Found
	if err := contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "find finished items"), contract.FindParts, in), &found); err != nil {
		return err
	}
	if found.Taken != "" {
		return errorOf(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Task: m.in.Name(), Edition: in.Owner.Edition,
			Message: fmt.Sprintf("%s has results of other code: editions %s, now %s", in.Parts, found.Taken, in.Owner.Edition),
			Hint:    "retry the map: what has new code runs anew, and the values of the stages before it are kept; or put the code back as it was"})
	}
	e.claim = found.Claim
	for at, s := range e.stages {
		s.todo, s.tally.Counts = nil, found.Stages[at].Counts
		s.requeue(ctx, contract.Piece{Work: found.Stages[at].Rest})
	}
	if m.rounds == 0 {
		e.failures.allow(e.failed(), m.in.MaxFailures.Count(e.total))
	}
	return nil
}

const maxRounds = 3

// finish merges the parts. It is not done if parts were lost or damaged: their items are
// work again.
func (m *mapping) finish(ctx workflow.Context) (summary gpumux.Summary, done bool, err error) {
	summary = m.engine.summary()
	if done, err = m.merge(ctx, &summary); err != nil || !done {
		return summary, false, err
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
	in := contract.MergeInput{Parts: m.engine.last().parts, Output: m.in.Output, Items: m.engine.total, Claim: m.engine.claim}
	for at, stage := range m.in.Stages {
		switch s := m.engine.stages[at]; {
		case s.next() == nil:
		case stage.Keep:
			in.Kept = append(in.Kept, s.parts)
		default:
			in.Spent = append(in.Spent, s.parts)
		}
	}
	var merged contract.Merged
	if err := contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "merge results"), contract.MergeParts, in), &merged); err != nil {
		return false, unwrapFault(err)
	}
	if merged.Missing != "" {
		if m.rounds++; m.rounds > maxRounds {
			return false, errorOf(&gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Task: m.in.Name(),
				Message: fmt.Sprintf("%s, although it ran %d times", merged.Missing, m.rounds), Hint: "give all workers one store that keeps what it is given"})
		}
		m.lost = merged.Missing
		return false, unwrapFault(m.findStored(ctx))
	}
	summary.Succeeded, summary.Failed, summary.Faults = merged.Succeeded, merged.Failed, merged.Faults
	summary.Output, summary.Results = merged.Output, merged.Results
	return true, nil
}

// findEditions finds the edition of each stage's code that the whole map runs with: the
// one that its input names, or that of the first worker of its pool that answers. That
// worker also knows whether there is the task.
func (m *mapping) findEditions(ctx workflow.Context) (err error) {
	asked, answered := 0, 0
	for at, s := range m.engine.stages {
		if s.in.Edition != "" && s.in.Edition != gpumux.AnyEdition || m.engine.total == 0 {
			continue
		}
		m.phase = gpumux.PhaseRunning // it waits for a slot, as a chunk would
		asked++
		workflow.Go(ctx, func(ctx workflow.Context) {
			found, failed := s.askEdition(ctx)
			answered, err = answered+1, cmp.Or(err, failed)
			s.in.Edition = cmp.Or(s.in.Edition, found.Edition)
			s.sizer.Likely, s.sizer.Sparing = found.Slots, true
			m.engine.contact = cmp.Or(m.engine.contact, found.Contact)
			if m.in.Stages == nil {
				m.in.Edition = s.in.Edition
			} else {
				m.in.Stages[at].Edition = s.in.Edition
			}
		})
	}
	if gone := workflow.Await(ctx, func() bool { return answered == asked || err != nil }); gone != nil {
		return gone
	}
	return err
}

// askEdition asks a worker of the stage's first pool for the edition of its task's code.
func (s *stage) askEdition(ctx workflow.Context) (found contract.Edition, err error) {
	e := s.e
	options := workflow.ActivityOptions{
		StartToCloseTimeout: contract.AnswerTimeout, WaitForCancellation: true,
		Summary:     text.Plain("find the edition of " + s.in.Task),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: 10 * time.Second},
		Priority:    fairly(ctx, e.in, e.id),
	}
	s.asking = true
	if e.onChange != nil {
		e.onChange(ctx)
	}
	defer func() { s.asking = false }()
	return found, s.ladder.runOnFirst(ctx, func(within workflow.Context, queue string) error {
		options.TaskQueue = queue
		return contract.Get(ctx, workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.FindEdition,
			contract.EditionInput{Task: s.in.Task}), &found)
	})
}
