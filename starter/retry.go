package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/results"
)

// StillRunningError says that a map is not over, as it has to be for what was asked.
type StillRunningError struct{ ID string }

// Error says what to do instead.
func (e *StillRunningError) Error() string {
	return fmt.Sprintf("map %s still runs; `gpumux wait %s` first, or cancel it", e.ID, e.ID)
}

// NothingToRetryError says that there is no map that could be retried.
type NothingToRetryError struct {
	Task string
	// ID is the one that the caller gave, if any.
	ID string
}

// Error says what else to do.
func (e *NothingToRetryError) Error() string {
	if e.ID != "" {
		return fmt.Sprintf("there is no map %s to retry; without a retry it is started", e.ID)
	}
	return fmt.Sprintf("there is no map of task %s over these items to retry; without a retry it is started", e.Task)
}

// Retry starts a new run of a map that is over, in which only the items without a
// successful result run; the results of both end up in one file. It runs with the edition
// of the task's code that there is now. Of a map that did not complete, the items without
// any result run. Change, unless it is nil, changes what the map runs with.
func (s *Starter) Retry(ctx context.Context, id string, change func(*gpumux.MapInput)) (*Handle, error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	if h.Running() {
		return nil, &StillRunningError{ID: id}
	}
	in, err := h.Input(ctx)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&in)
	}
	in.Edition = "" // mending the task is what a retry is for
	return s.rerun(ctx, h.run, in)
}

// retry finds the map by its ID, else the newest of the same fingerprint.
func (s *Starter) retry(ctx context.Context, m Map, id, fingerprint string, named bool) (*Handle, error) {
	last, err := s.own(ctx, id, fingerprint)
	if err == nil && last == nil && !named {
		if id, err = s.newest(ctx, fingerprint); err == nil && id != "" {
			last, err = s.own(ctx, id, fingerprint)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, &NothingToRetryError{Task: m.Input.Task, ID: m.ID}
	case last.Status == Running:
		return s.handle(last, Attached), nil
	}
	began, err := s.inputOf(ctx, last)
	if err != nil {
		return nil, err
	}
	in := m.Input
	in.Items, in.Source, in.Columns, in.Range = began.Items, began.Source, began.Columns, began.Range
	in.Key, in.WithItem = began.Key, began.WithItem // as the results have that stay
	in.Cache = in.Cache && in.Items == nil
	return s.rerun(ctx, last, in)
}

func (s *Starter) newest(ctx context.Context, fingerprint string) (string, error) {
	const limit = 10_000 // so that a server with very many maps is not read to its end
	seen := 0
	for r, err := range s.newestRuns(ctx, "") {
		if err != nil {
			return "", err
		}
		if r.Memo.Fingerprint == fingerprint {
			return r.ID, nil
		}
		if seen++; seen == limit {
			break
		}
	}
	return "", nil
}

// rerun starts a new run of a map that is over, over the items that in names.
func (s *Starter) rerun(ctx context.Context, last *run, in gpumux.MapInput) (*Handle, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	id, note, entry := last.ID, last.Memo, Continued
	note.Task = cmp.Or(note.Task, in.Task)
	if note.Fingerprint == "" {
		note.Items = in.Len()
	}
	if last.Status == Completed {
		found := s.handle(last, Found)
		summary, err := found.Wait(ctx)
		if err != nil || summary.Failed == 0 {
			return found, err
		}
		entry = Retried
		note.Output = newOutput(id)
		if note.Store, err = s.copyResults(ctx, summary, note.Output); err != nil {
			return nil, fmt.Errorf("retry map %s: %w", id, err)
		}
	}
	in.Output = note.Output
	h, err := s.begin(ctx, id, in, note, entry, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE)
	if errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
		return nil, &StillRunningError{ID: id}
	}
	return h, err
}

// Limits on one part of kept results.
const (
	keptItems = 1000
	keptBytes = 4 << 20
)

// copyResults copies succeeded results beside output and returns the store's URL.
func (s *Starter) copyResults(ctx context.Context, summary gpumux.Summary, output string) (string, error) {
	st, err := s.store(ctx)
	if err != nil {
		return "", fmt.Errorf("its results pass through the workers' store: %w", err)
	}
	from, err := st.Folder(contract.PartsOf(summary.Output))
	if err != nil {
		return "", err
	}
	to, err := st.Folder(contract.PartsOf(output))
	if err != nil {
		return "", err
	}
	var batch []gpumux.Result
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := st.WritePart(ctx, contract.PartsOf(output), batch); err != nil {
			return fmt.Errorf("keep its results: %w", err)
		}
		batch, size = batch[:0], 0
		return nil
	}
	stored := linesOf(func(give func([]byte) error) error { return s.eachStored(ctx, summary, give) })
	for result, err := range parsed(stored, results.ParseStored) {
		if err != nil {
			return "", err
		}
		if result.Fault != nil {
			continue
		}
		if err := from.CopyFiles(ctx, result, to, result.Index); err != nil {
			return "", fmt.Errorf("keep its files: %w", err)
		}
		batch = append(batch, result)
		if size += result.Weight(); len(batch) == keptItems || size >= keptBytes {
			if err := flush(); err != nil {
				return "", err
			}
		}
	}
	if err := flush(); err != nil {
		return "", err
	}
	return st.Objects.URL(), from.KeepOwner(ctx, to)
}

// EndedError says that a run ended without completing.
type EndedError struct {
	ID string
	// Status is Failed, Canceled or Terminated.
	Status Status
	// Fault says why a run failed. Its Kind is empty when the failure was none of gpumux's.
	Fault gpumux.Fault
	Err   error
}

// Error is one line with the fault, or with how to go on.
func (e *EndedError) Error() string {
	const goOn = "; start it again to go on with the items that have no result"
	switch of := e.Fault.Of(); {
	case e.Status == Canceled:
		return "map " + e.ID + " was cancelled" + goOn
	case e.Status == Terminated:
		return "map " + e.ID + " was terminated" + goOn
	case e.Fault.Kind == "":
		return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Message)
	case of != "":
		return fmt.Sprintf("map %s failed at %s: %s", e.ID, of, e.Fault.Error())
	}
	return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Error())
}

// Unwrap gives Temporal's error.
func (e *EndedError) Unwrap() error { return e.Err }

// NotFoundError says that there is no such map.
type NotFoundError struct {
	ID string
	// Known are IDs of the newest maps.
	Known []string
}

// Error lists what exists.
func (e *NotFoundError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("there is no map %q, nor any other; start one with `gpumux map`", e.ID)
	}
	return fmt.Sprintf("there is no map %q; the newest are %s; `gpumux ls` lists all", e.ID, strings.Join(e.Known, ", "))
}

// ended makes an EndedError of a workflow's error, and leaves others as they are.
func ended(id string, err error) error {
	if !errors.As(err, new(*temporal.WorkflowExecutionError)) {
		return fleet.WithKeysHint(err)
	}
	var timeout *temporal.TimeoutError
	var application *temporal.ApplicationError
	e := &EndedError{ID: id, Status: Failed, Err: err}
	switch {
	case errors.As(err, new(*temporal.TerminatedError)):
		e.Status = Terminated
	case errors.As(err, &application):
		e.Fault = faultOf(application)
	case errors.As(err, new(*temporal.CanceledError)):
		e.Status = Canceled
	case errors.As(err, &timeout):
		e.Fault = gpumux.Fault{Kind: gpumux.Timeout, Message: "the map's workflow took longer than it was given",
			Hint: "start it again to go on with the items that have no result"}
		if timeout.TimeoutType() != enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			e.Fault.Message = "the map's workflow timed out: " + timeout.TimeoutType().String()
		}
	default:
		e.Fault.Message = err.Error()
	}
	return e
}

// faultOf reads the fault that an application error carries as its first detail.
func faultOf(e *temporal.ApplicationError) gpumux.Fault {
	var fault gpumux.Fault
	if e.HasDetails() {
		if err := e.Details(&fault); err == nil && fault.Kind != "" {
			return fault
		}
	}
	return gpumux.Fault{Message: e.Message()}
}
