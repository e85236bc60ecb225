package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/store"
)

// Starter starts and finds maps. Its methods may be called from several goroutines.
type Starter struct {
	Client client.Client
	// Namespace is the client's. Default "default".
	Namespace string
	// Store is the URL of the store where large inputs and results lie, such as
	// s3://bucket?region=eu-west-1. Default: asked from the workers.
	Store string
	// StoreID is the identity that Store must have. Default: any.
	StoreID string
	// Converter is the Client's data converter. Default: the SDK's.
	Converter converter.DataConverter

	opening sync.Mutex // held while the store is opened or closed
	opened  *store.Store
}

// Close closes the store.
func (s *Starter) Close() {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.opened != nil {
		_ = s.opened.Close()
		s.opened = nil
	}
}

func (s *Starter) fleet() *fleet.Fleet {
	return &fleet.Fleet{Client: s.Client, Namespace: cmp.Or(s.Namespace, client.DefaultNamespace)}
}

func (s *Starter) registry() registry {
	return registry{fleet: s.fleet(), data: cmp.Or(s.Converter, converter.GetDefaultDataConverter())}
}

// Holds reports whether a URL is an object in the workers' store.
func (s *Starter) Holds(ctx context.Context, url string) bool {
	st, err := s.UseStore(ctx)
	var away *NoStoreError
	switch {
	case err == nil:
		_, err = st.Objects.Key(url)
		return err == nil
	case errors.As(err, &away) && away.URL != "": // it is out of reach from here, but its URL is known
		folder, _, _ := strings.Cut(away.URL, "?")
		return strings.HasPrefix(url, strings.TrimSuffix(folder, "/")+"/")
	}
	return false
}

// Entry is how Start came to the run that it returns.
type Entry string

const (
	// EntryStarted is a new run from the first item on.
	EntryStarted Entry = "started"
	// EntryAttached is a run that went on already.
	EntryAttached Entry = "attached"
	// EntryContinued is a new run of a map that did not complete; its stored results stand.
	EntryContinued Entry = "continued"
	// EntryChanged is a new run of a map that did not complete, with other code from stage
	// Handle.Changed on; what the stages before gave stands.
	EntryChanged Entry = "changed"
	// EntryRetried is a new run of a completed map; its succeeded results stand.
	EntryRetried Entry = "retried"
	// EntryFound is a completed run that the caller named.
	EntryFound Entry = "found"
)

// Start starts a map, or finds the one under its ID. Mistakes in the input are a
// *gpumux.InputError. It returns as soon as the server has the map.
func (s *Starter) Start(ctx context.Context, m Map) (*Handle, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	id, fingerprint := m.Identify()
	if m.ID != "" {
		if err := CheckID(m.ID); err != nil {
			return nil, err
		}
		id = m.ID
	}
	if m.Retry {
		return s.retry(ctx, m, id, fingerprint)
	}
	placed, storeURL := false, ""
	for range 8 { // each round but the last lost a race against another caller
		last, err := s.registry().latest(ctx, id, fingerprint)
		if err != nil {
			return nil, err
		}
		entry, reuse := decide(last, m.ID != "")
		if last != nil {
			if err := s.handle(last, entry).CheckEdition(m); err != nil {
				return nil, err
			}
			if entry == EntryContinued && m.changed(last.Memo.Edition) >= 0 {
				entry = EntryChanged
			}
		}
		if entry == EntryAttached || entry == EntryFound {
			return s.handle(last, entry), nil
		}
		if !placed {
			if storeURL, err = s.place(ctx, &m); err != nil {
				return nil, err
			}
			placed = true
		}
		note := m.note(fingerprint, id, storeURL, entry, last)
		m.Input.Output, storeURL = note.Output, note.Store
		h, err := s.begin(ctx, id, m.Input, note, entry, reuse)
		if entry == EntryChanged && err == nil {
			h.Changed = m.changed(last.Memo.Edition)
		}
		if !errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
			return h, err
		}
	}
	return nil, fmt.Errorf("start map %s: other callers keep starting and ending it; give an ID of its own", id)
}

// decide chooses what a call does by the last run under the ID.
func decide(last *run, named bool) (Entry, enumspb.WorkflowIdReusePolicy) {
	const onlyFailed = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	switch {
	case last == nil:
		return EntryStarted, onlyFailed
	case last.Status == StatusRunning:
		return EntryAttached, 0
	case last.Status != StatusCompleted:
		return EntryContinued, onlyFailed
	case named:
		return EntryFound, 0
	}
	return EntryStarted, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
}

// begin starts the workflow; a running one is WorkflowExecutionAlreadyStarted.
func (s *Starter) begin(ctx context.Context, id string, in gpumux.MapInput, note memo, entry Entry,
	reuse enumspb.WorkflowIdReusePolicy) (*Handle, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	started, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: gpumux.Queue,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:                    reuse,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{memoKey: note},
		StaticSummary:                            summaryLine(note),
		StaticDetails:                            detailLines(in, note),
		Priority:                                 temporal.Priority{PriorityKey: in.Priority, FairnessKey: in.FairnessKey, FairnessWeight: float32(in.FairnessWeight)},
	}, gpumux.MapWorkflow, in)
	if err != nil {
		return nil, fmt.Errorf("start map %s: %w", id, err)
	}
	r := &run{MapInfo: MapInfo{ID: id, RunID: started.GetRunID(), Status: StatusRunning}, FirstRunID: started.GetRunID(), Memo: note}
	return s.handle(r, entry), nil
}

// Retry starts a new run of a map that is over, in which only the items without a
// successful result run; the results of both end up in one file. It runs with the edition
// of the task's code that there is now. Of a map that did not complete, the items without
// any result run. Change, unless it is nil, changes the input.
func (s *Starter) Retry(ctx context.Context, id string, change func(*gpumux.MapInput)) (*Handle, error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	if h.Running() {
		return nil, stillRuns(id)
	}
	in, err := h.Input(ctx)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&in)
	}
	if in.Edition != gpumux.AnyEdition {
		in.Edition = "" // mending the task is what a retry is for
	}
	in.Stages = slices.Clone(in.Stages)
	for i, stage := range in.Stages {
		if stage.Edition != gpumux.AnyEdition {
			in.Stages[i].Edition = ""
		}
	}
	return s.rerun(ctx, h.run, in)
}

// retry finds the map by its ID, else the newest of the same fingerprint.
func (s *Starter) retry(ctx context.Context, m Map, id, fingerprint string) (*Handle, error) {
	maps := s.registry()
	last, err := maps.latest(ctx, id, fingerprint)
	if err == nil && last == nil && m.ID == "" {
		if id, err = maps.newest(ctx, fingerprint); err == nil && id != "" {
			last, err = maps.latest(ctx, id, fingerprint)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, nothingToRetry(m.ID, m.Input.Name())
	case last.Status == StatusRunning:
		return s.handle(last, EntryAttached), nil
	}
	began, err := maps.input(ctx, last)
	if err != nil {
		return nil, err
	}
	in := m.Input
	in.Items, in.Source, in.Columns, in.Range = began.Items, began.Source, began.Columns, began.Range
	in.Key, in.WithItem = began.Key, began.WithItem // as the results have that stay
	m.Input = in
	if err := s.placeArg(ctx, &m); err != nil {
		return nil, err
	}
	return s.rerun(ctx, last, m.Input)
}

// rerun starts a new run of a map that is over, over the items that in names.
func (s *Starter) rerun(ctx context.Context, last *run, in gpumux.MapInput) (*Handle, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	id, note, entry := last.ID, last.Memo, EntryContinued
	note.Task = cmp.Or(note.Task, in.Name())
	if note.Fingerprint == "" {
		note.Items = in.Len()
	}
	if last.Status == StatusCompleted {
		found := s.handle(last, EntryFound)
		summary, err := found.Wait(ctx)
		if err != nil || summary.Failed == 0 {
			return found, err
		}
		entry = EntryRetried
		note.Output = newOutput(id)
		if note.Store, err = s.copyResults(ctx, s.Completed(summary), note.Output); err != nil {
			return nil, fmt.Errorf("retry map %s: %w", id, err)
		}
	} else if in.Stages != nil && last.Status == StatusFailed {
		_, err := s.handle(last, EntryFound).Wait(ctx)
		if over, is := errors.AsType[*EndedError](err); is && over.Fault.Kind == gpumux.FaultBadInput && over.Fault.Edition != "" {
			note.Output = newOutput(id) // its results are of other code
		}
	}
	in.Output = cmp.Or(note.Output, in.Output) // a map by name has no note
	h, err := s.begin(ctx, id, in, note, entry, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE)
	if errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
		return nil, stillRuns(id)
	}
	return h, err
}

// Open finds the newest run of a map; it is a *NotFoundError when there is none.
func (s *Starter) Open(ctx context.Context, id string) (*Handle, error) {
	r, err := s.registry().describe(ctx, id)
	if err != nil {
		return nil, err
	}
	if r != nil {
		h := s.handle(r, EntryAttached)
		if r.Memo.Fingerprint == "" { // somebody started it by name
			h.Items = -1
			if in, err := h.Input(ctx); err == nil {
				h.Task, h.Items = in.Name(), in.Len()
			}
		}
		return h, nil
	}
	missing := &NotFoundError{ID: id}
	if maps, err := s.List(ctx, ListOptions{Limit: 5}); err == nil {
		for _, m := range maps {
			missing.Known = append(missing.Known, m.ID)
		}
	}
	return nil, missing
}

// RefusedError says why a call that names a map does nothing, and what to do instead.
type RefusedError struct{ ID, Problem string }

func (e *RefusedError) Error() string { return e.Problem }

func refused(id, format string, args ...any) error {
	return &RefusedError{id, fmt.Sprintf(format, args...)}
}

func stillRuns(id string) error {
	return refused(id, "map %s still runs; `gpumux wait %s` first, or cancel it", id, id)
}

// nothingToRetry is for an ID that the caller gave, or none.
func nothingToRetry(id, task string) error {
	if id != "" {
		return refused(id, "there is no map %s to retry; without a retry it is started", id)
	}
	return refused("", "there is no map of task %s over these items to retry; without a retry it is started", task)
}
