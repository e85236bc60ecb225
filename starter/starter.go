package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store"
)

// Starter starts and finds maps. Its methods may be called from several goroutines; its fields are set before the first call.
type Starter struct {
	Client client.Client
	// Namespace is the client's. Default "default".
	Namespace string
	// Store is where large inputs and results lie. Default: the workers' own, which is asked from them when it is needed.
	Store *store.Store
	// Converter is the Client's data converter, with which memos and inputs are read. Default: the SDK's.
	Converter converter.DataConverter
	// Keys are those of the workers' store, when this Starter opens it. Default: none.
	Keys store.Keys

	mu     sync.Mutex
	opened *store.Store // the workers' store, opened by this Starter
	// searched says whether the server has the search attributes; nil before it was asked.
	searched *bool
}

// Close closes the store that the Starter opened itself. The Client and the given Store stay open.
func (s *Starter) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		_ = s.opened.Close()
		s.opened = nil
	}
}

func (s *Starter) namespace() string { return cmp.Or(s.Namespace, client.DefaultNamespace) }

// Map is one call of Start.
type Map struct {
	Input gpumux.MapInput
	// ID names the map. Default: made of its task, input and options, so that the same call finds the same map.
	ID string
	// Spooled are the items in a local file; Input then has no items, source and range of its own.
	Spooled *store.Spooled
	// Scope tells tasks of the same name apart in a made ID, such as the folder that a local task lies in.
	Scope string
	// Edition tells versions of a task's code apart in a made ID, so that a changed task is a new map.
	Edition string
	// Label says in words where the items come from, such as a file's name, for people who list maps.
	Label string
	// Inline keeps the map out of the store as long as its results are few and small: nothing of it is left to go on with.
	Inline bool
	// Retry makes a completed map run again those items only that failed.
	Retry bool
}

// Entry is how Start came to the run that it returns.
type Entry string

const (
	// Started is a new run from the first item on.
	Started Entry = "started"
	// Attached is a run that went on already.
	Attached Entry = "attached"
	// Continued is a new run of a map that did not complete; its stored results stand.
	Continued Entry = "continued"
	// Retried is a new run of a completed map; its succeeded results stand.
	Retried Entry = "retried"
	// Found is a completed run that the caller named.
	Found Entry = "found"
)

// Start starts a map, or finds the one under its ID, by the rules of the package documentation. Mistakes in the input are a
// *gpumux.InputError and cost nothing. It returns as soon as the server has the map.
func (s *Starter) Start(ctx context.Context, m Map) (*Handle, error) {
	given := m.Input
	if m.Spooled != nil {
		if m.Input.Len() != 0 || m.Input.Items != nil {
			return nil, errors.New("start map: give either Spooled or Input's items, source or range")
		}
		given.Range = &gpumux.Range{} // stands for the items, which are known to be good
	}
	if err := given.Validate(); err != nil {
		return nil, err
	}
	items := ""
	if m.Spooled != nil {
		items = m.Spooled.Hash
	}
	who := identify(m.Input, m.Scope, items)
	id, named := who.of(m.Edition), m.ID != ""
	if named {
		if err := CheckID(m.ID); err != nil {
			return nil, err
		}
		id = m.ID
	}
	placed, storeURL := false, ""
	for range 8 { // each round but the last lost a race against another caller
		last, err := s.describe(ctx, id)
		if err != nil {
			return nil, err
		}
		if last != nil && last.Unread != nil {
			return nil, fmt.Errorf("look up map %s: %w", id, last.Unread)
		}
		if last != nil && last.Memo.Fingerprint != "" && last.Memo.Fingerprint != who.fingerprint {
			return nil, &OtherMap{ID: id, Task: last.Memo.Task, Items: last.Memo.Items, Input: last.Memo.Input, Status: last.Status}
		}
		entry, reuse := decide(last, named, m.Retry)
		switch entry {
		case Attached, Found:
			return s.handle(last, entry), nil
		case Retried:
			return s.Retry(ctx, id, RetryOptions{})
		}
		if !placed {
			if storeURL, err = s.place(ctx, &m); err != nil {
				return nil, err
			}
			placed = true
		}
		m.Input.Output = ""
		switch {
		case entry == Continued && last.Memo.Output != "":
			m.Input.Output, storeURL = last.Memo.Output, cmp.Or(storeURL, last.Memo.Store)
		case storeURL != "" && !m.Inline || m.manyResults():
			m.Input.Output = newOutput(id) // a key, which the workers find even when their store is out of reach from here
		}
		note := memo{Fingerprint: who.fingerprint, Task: m.Input.Task, Items: m.length(), Input: m.Label,
			Output: m.Input.Output, Store: storeURL, Edition: m.Edition}
		if entry == Continued && last.Memo.Edition != "" {
			note.Edition = last.Memo.Edition // of the results that it has
		}
		h, err := s.begin(ctx, id, m.Input, note, entry, reuse)
		var already *serviceerror.WorkflowExecutionAlreadyStarted
		if errors.As(err, &already) {
			continue
		}
		return h, err
	}
	return nil, fmt.Errorf("start map %s: other callers keep starting and ending it; give an ID of its own with --id", id)
}

// decide is the table of what a call does with what the ID last was.
func decide(last *run, named, retry bool) (Entry, enumspb.WorkflowIdReusePolicy) {
	const onlyFailed = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	switch {
	case last == nil:
		return Started, onlyFailed
	case last.Status == Running:
		return Attached, 0
	case last.Status != Completed:
		return Continued, onlyFailed
	case retry:
		return Retried, 0
	case named:
		return Found, 0
	}
	return Started, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
}

// begin starts the workflow; a run that goes on under the same ID is WorkflowExecutionAlreadyStarted.
func (s *Starter) begin(ctx context.Context, id string, in gpumux.MapInput, note memo, entry Entry,
	reuse enumspb.WorkflowIdReusePolicy) (*Handle, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	options := client.StartWorkflowOptions{
		ID: id, TaskQueue: gpumux.Queue,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:                    reuse,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Memo:                                     map[string]any{memoKey: note},
		StaticSummary:                            summaryLine(note),
		StaticDetails:                            detailLines(in, note),
		Priority:                                 temporal.Priority{PriorityKey: in.Priority, FairnessKey: in.FairnessKey},
	}
	started, err := s.execute(ctx, options, in)
	if err != nil {
		return nil, fmt.Errorf("start map %s: %w", id, err)
	}
	r := &run{ID: id, RunID: started.GetRunID(), FirstRunID: started.GetRunID(), Status: Running, Memo: note}
	return s.handle(r, entry), nil
}

// OtherMap says that an ID belongs to a map of another task or over other items.
type OtherMap struct {
	ID, Task, Input string
	Items           int64
	Status          Status
}

// Error says what the ID names.
func (e *OtherMap) Error() string {
	over := e.Input
	if over == "" {
		over = "other items"
	}
	if e.Items >= 0 {
		over = fmt.Sprintf("%d items (%s)", e.Items, over)
	}
	return fmt.Sprintf("map ID %q is taken: it names a map of task %s over %s, %s; give another --id, or that task and input",
		e.ID, e.Task, over, e.Status)
}
