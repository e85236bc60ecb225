package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/workflows"
)

// Handle follows and steers one run of a map.
type Handle struct {
	ID, RunID string
	Entry     Entry
	// Task and Items are of the map; Items is -1 when only the workers can tell.
	Task  string
	Items int64
	// Edition is the task's edition when the map was started; see Map.
	Edition string
	// Changed is the stage with which an EntryChanged begins.
	Changed int
	// Output is the key of its results file, if it has one.
	Output string

	starter *Starter
	run     *run
	summary *gpumux.Summary // nil where it has to be asked for
}

func (s *Starter) handle(r *run, entry Entry) *Handle {
	return &Handle{ID: r.ID, RunID: r.RunID, Entry: entry, Task: r.Memo.Task, Items: r.Memo.Items,
		Edition: r.Memo.Edition, Output: r.Memo.Output, starter: s, run: r}
}

// CheckEdition returns a *RefusedError if m would continue the map with other code. A map
// that is over may have other code in later stages.
func (h *Handle) CheckEdition(m Map) error {
	began, stage := h.run.Memo.Edition, m.changed(h.run.Memo.Edition)
	over := h.run.Status == StatusCompleted || h.run.Status != StatusRunning && (m.Retry || stage > 0) // mending the task is what a retry is for
	if over || stage < 0 {
		return nil
	}
	return refused(h.ID, "map %s began with edition %s of the code of task %s, which has edition %s now; put the code back as it was to go on "+
		"with the map, or give another ID for a new one", h.ID, began, h.Task, m.Edition)
}

// EndChanged terminates a run that m would continue with other code in later stages.
func (h *Handle) EndChanged(ctx context.Context, m Map) error {
	if !h.Running() || m.changed(h.run.Memo.Edition) <= 0 {
		return nil
	}
	if err := h.starter.Client.TerminateWorkflow(ctx, h.ID, h.RunID, "a later stage has other code"); err != nil {
		return fmt.Errorf("end map %s, whose code has changed: %w", h.ID, err)
	}
	h.run.Status = StatusTerminated
	return nil
}

// Running reports whether the run went on when the handle was made.
func (h *Handle) Running() bool { return h.run.Status == StatusRunning }

// FirstRunID stays the same when a large map continues in a new history.
func (h *Handle) FirstRunID() string { return h.run.FirstRunID }

// Progress asks the map once. A worker must answer within 10 s.
func (h *Handle) Progress(ctx context.Context) (gpumux.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := h.starter.fleet().Progress(ctx, h.ID)
	if err != nil {
		return p, fmt.Errorf("ask map %s for its progress: %w", h.ID, err)
	}
	return p, nil
}

const (
	// Watch asks quickly at first, and then ever more seldom, a twentieth of the time that
	// it has watched: each question is work for a worker, and may be billed.
	firstPoll, lastPoll = 250 * time.Millisecond, 5 * time.Second
	// agedPoll is the pause of others who wait.
	agedPoll = time.Second
)

// Watch is Wait that also calls show with the progress, four times a second at first and
// every five seconds later. It is never called after Watch returned.
func (h *Handle) Watch(ctx context.Context, show func(gpumux.Progress)) (gpumux.Summary, error) {
	polling, stop := context.WithCancel(ctx)
	began := time.Now()
	var polls sync.WaitGroup
	polls.Go(func() {
		for polling.Err() == nil {
			if p, err := h.Progress(polling); err == nil && polling.Err() == nil {
				show(p)
			}
			_ = pause(polling, min(max(firstPoll, time.Since(began)/20), lastPoll)) // the loop looks
		}
	})
	summary, err := h.Wait(ctx)
	stop()
	polls.Wait()
	return summary, err
}

// outage is how long Wait goes on asking a server that does not answer.
const outage = time.Minute

// Wait waits for the run to end. A run that did not complete is an *EndedError. When ctx
// ends first, the map goes on. A server may be away for a minute.
func (h *Handle) Wait(ctx context.Context) (gpumux.Summary, error) {
	if h.summary != nil {
		return *h.summary, nil
	}
	var silent time.Time
	for {
		var summary gpumux.Summary
		asked := time.Now()
		err := h.starter.Client.GetWorkflow(ctx, h.ID, h.RunID).Get(ctx, &summary)
		switch {
		case err == nil:
			return summary, nil
		case ctx.Err() != nil:
			return summary, context.Cause(ctx)
		case !fleet.Unreachable(err):
			return summary, ended(h.ID, h.Output != "", err)
		}
		if silent.IsZero() || time.Since(asked) > outage {
			silent = time.Now()
		}
		if time.Since(silent) > outage {
			return summary, &fleet.ConnectError{Err: err,
				Hint: "the map goes on as soon as the server is back; follow it with `gpumux wait " + h.ID + "`"}
		}
		if err := pause(ctx, agedPoll); err != nil {
			return summary, err
		}
	}
}

// Pause stops handing out chunks; those in flight finish.
func (h *Handle) Pause(ctx context.Context) error { return h.update(ctx, gpumux.PauseUpdate) }

// Resume ends a pause.
func (h *Handle) Resume(ctx context.Context) error { return h.update(ctx, gpumux.ResumeUpdate) }

// update needs a worker to answer and gives it 30 s.
func (h *Handle) update(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := h.starter.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: h.ID, UpdateName: name, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = answer.Get(ctx, nil)
	}
	return h.steered(name, err)
}

// Cancel asks the map to stop: its task processes are ended, and stored results stay. It
// returns when the server has the request; Wait tells when the map is over.
func (h *Handle) Cancel(ctx context.Context) error {
	// Newer servers take a request for a workflow that has ended and do nothing.
	if last, err := h.starter.registry().describe(ctx, h.ID); err == nil && last != nil && last.Status != StatusRunning {
		return h.steered("cancel", serviceerror.NewNotFound("ended"))
	}
	return h.steered("cancel", h.starter.Client.CancelWorkflow(ctx, h.ID, ""))
}

func (h *Handle) steered(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*serviceerror.NotFound)):
		return fmt.Errorf("%s map %s: it has ended; `gpumux show %s` tells what it came to", name, h.ID, h.ID)
	case fleet.Unreachable(err):
		return fmt.Errorf("%s map %s: nobody answered in time, a worker must serve queue %s: %w", name, h.ID, gpumux.Queue, err)
	}
	return fmt.Errorf("%s map %s: %w", name, h.ID, err)
}

// Input is the input that the map was started with.
func (h *Handle) Input(ctx context.Context) (gpumux.MapInput, error) {
	return h.starter.registry().input(ctx, h.run)
}

// EndedError says that a run ended without completing. errors.As finds in it the
// *gpumux.Fault that ended the map, if there is one, and Temporal's error.
type EndedError struct {
	ID string
	// Status is StatusFailed, StatusCanceled or StatusTerminated.
	Status Status
	// Fault says why a run failed. Its Kind is empty when the failure was none of gpumux's.
	Fault gpumux.Fault
	Err   error
	// resumes says that the map has a folder in the store, in which it goes on.
	resumes bool
}

const resume = "start it again to go on with the items that have no result"

func (e *EndedError) Error() string {
	goOn := text.When(e.resumes, "; %s", resume)
	switch item := e.Fault.Which(); {
	case e.Status == StatusCanceled:
		return "map " + e.ID + " was cancelled" + goOn
	case e.Status == StatusTerminated:
		return "map " + e.ID + " was terminated" + goOn
	case e.Fault.Kind == "":
		return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Message)
	case item != "":
		return fmt.Sprintf("map %s failed at %s: %s", e.ID, item, e.Fault.Error())
	}
	return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Error())
}

// Unwrap gives the fault, if gpumux found one, and Temporal's error.
func (e *EndedError) Unwrap() []error {
	if e.Fault.Kind == "" {
		return []error{e.Err}
	}
	return []error{&e.Fault, e.Err}
}

// ended makes an EndedError of a workflow's error, and leaves others as they are.
func ended(id string, resumes bool, err error) error {
	if !errors.As(err, new(*temporal.WorkflowExecutionError)) {
		return fmt.Errorf("read what map %s came to: %w", id, fleet.WithCodecHint(err))
	}
	var timeout *temporal.TimeoutError
	var application *temporal.ApplicationError
	e := &EndedError{ID: id, Status: StatusFailed, Err: err, resumes: resumes}
	switch {
	case errors.As(err, new(*temporal.TerminatedError)):
		e.Status = StatusTerminated
	case errors.As(err, &application):
		e.Fault = faultOf(application)
	case errors.As(err, new(*temporal.CanceledError)):
		e.Status = StatusCanceled
	case errors.As(err, &timeout):
		e.Fault = gpumux.Fault{Kind: gpumux.FaultTimeout, Message: "the map's workflow took longer than it was given"}
		if resumes {
			e.Fault.Hint = resume
		}
		if timeout.TimeoutType() != enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			e.Fault.Message = "the map's workflow timed out: " + timeout.TimeoutType().String()
		}
	default:
		e.Fault.Message = err.Error()
	}
	return e
}

// faultOf is the fault that an application error carries, else its message alone.
func faultOf(e *temporal.ApplicationError) gpumux.Fault {
	return *cmp.Or(workflows.FaultOf(e), &gpumux.Fault{Message: e.Message()})
}
