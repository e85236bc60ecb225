package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/store"
)

// Starter starts and finds maps. Its methods may be called from several goroutines.
type Starter struct {
	Client client.Client
	// Namespace is the client's. Default "default".
	Namespace string
	// Store is where large inputs and results lie. Default: asked from the workers.
	Store *store.Store
	// Converter is the Client's data converter. Default: the SDK's.
	Converter converter.DataConverter
	// Keys are those of the workers' store, when this Starter opens it. Default: none.
	Keys store.Keys
	// Arrays leaves arrays in lines of results as they are stored. Default: JSON.
	Arrays bool

	mu     sync.Mutex
	opened *store.Store // the workers' store, opened by this Starter
}

// Close closes the store that the Starter opened itself.
func (s *Starter) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		_ = s.opened.Close()
		s.opened = nil
	}
}

// Fleet is the workers of the namespace.
func (s *Starter) Fleet() *fleet.Fleet { return &fleet.Fleet{Client: s.Client, Namespace: s.Namespace} }

func (s *Starter) namespace() string { return cmp.Or(s.Namespace, client.DefaultNamespace) }

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

// Start starts a map, or finds the one under its ID. Mistakes in the input are a
// *gpumux.InputError. It returns as soon as the server has the map.
func (s *Starter) Start(ctx context.Context, m Map) (*Handle, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	id, fingerprint := m.Identify()
	named := m.ID != ""
	if named {
		if err := CheckID(m.ID); err != nil {
			return nil, err
		}
		id = m.ID
	}
	if m.Retry {
		return s.retry(ctx, m, id, fingerprint, named)
	}
	placed, storeURL := false, ""
	for range 8 { // each round but the last lost a race against another caller
		last, err := s.own(ctx, id, fingerprint)
		if err != nil {
			return nil, err
		}
		if last != nil && last.Unread != nil {
			return nil, fmt.Errorf("look up map %s: %w", id, last.Unread)
		}
		entry, reuse := decide(last, named)
		if last != nil {
			if err := s.handle(last, entry).Suits(m); err != nil {
				return nil, err
			}
		}
		if entry == Attached || entry == Found {
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
		if !errors.As(err, new(*serviceerror.WorkflowExecutionAlreadyStarted)) {
			return h, err
		}
	}
	return nil, fmt.Errorf("start map %s: other callers keep starting and ending it; give an ID of its own", id)
}

// note is the memo of a new run of the map, after the last one that it goes on from.
func (m *Map) note(fingerprint, id, storeURL string, entry Entry, last *run) memo {
	note := memo{Fingerprint: fingerprint, Task: m.Input.Task, Items: m.length(), Input: m.Label, Store: storeURL, Edition: m.Edition}
	switch {
	case entry == Continued && last.Memo.Output != "":
		note.Output, note.Store = last.Memo.Output, cmp.Or(storeURL, last.Memo.Store)
	case storeURL != "" && !m.Inline || m.manyResults():
		note.Output = newOutput(id) // a key, which the workers find even when their store is out of reach from here
	}
	if entry == Continued && last.Memo.Edition != "" {
		note.Edition = last.Memo.Edition // of the results that it has
	}
	return note
}

// own is the newest run under an ID, or nil; one of other items is an *OtherMapError.
func (s *Starter) own(ctx context.Context, id, fingerprint string) (*run, error) {
	last, err := s.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Memo.Fingerprint != "" && last.Memo.Fingerprint != fingerprint {
		return nil, &OtherMapError{ID: id, Task: last.Memo.Task, Items: last.Memo.Items, Input: last.Memo.Input, Status: last.Status}
	}
	return last, nil
}

// decide chooses what a call does by the last run under the ID.
func decide(last *run, named bool) (Entry, enumspb.WorkflowIdReusePolicy) {
	const onlyFailed = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	switch {
	case last == nil:
		return Started, onlyFailed
	case last.Status == Running:
		return Attached, 0
	case last.Status != Completed:
		return Continued, onlyFailed
	case named:
		return Found, 0
	}
	return Started, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
}

// begin starts the workflow; a running one is WorkflowExecutionAlreadyStarted.
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
		Priority:                                 temporal.Priority{PriorityKey: in.Priority, FairnessKey: in.FairnessKey, FairnessWeight: float32(in.FairnessWeight)},
	}
	if s.searchable(ctx) {
		options.TypedSearchAttributes = searchAttributes(in)
	}
	started, err := s.Client.ExecuteWorkflow(ctx, options, gpumux.MapWorkflow, in)
	if err != nil {
		return nil, fmt.Errorf("start map %s: %w", id, err)
	}
	r := &run{Listed: Listed{ID: id, RunID: started.GetRunID(), Status: Running}, FirstRunID: started.GetRunID(), Memo: note}
	return s.handle(r, entry), nil
}

// longestKeyword is the most bytes of a Keyword that servers with an SQL database take.
const longestKeyword = 255

func searchAttributes(in gpumux.MapInput) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		temporal.NewSearchAttributeKeyKeyword(names.SearchTask).ValueSet(strings.ToValidUTF8(in.Task[:min(len(in.Task), longestKeyword)], "")),
		temporal.NewSearchAttributeKeyInt64(names.SearchFailed).ValueSet(0))
}

func (s *Starter) searchable(ctx context.Context) bool {
	answer, err := s.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: s.namespace()})
	there := answer.GetCustomAttributes()
	return err == nil && there[names.SearchTask] == enumspb.INDEXED_VALUE_TYPE_KEYWORD &&
		there[names.SearchFailed] == enumspb.INDEXED_VALUE_TYPE_INT
}

// OtherEditionError says that the task's code has changed since the map began.
type OtherEditionError struct{ ID, Task, Began, Now string }

// Error names both editions and what to do.
func (e *OtherEditionError) Error() string {
	return fmt.Sprintf("map %s began with edition %s of the code of task %s, which has edition %s now; put the code back as it was to go on "+
		"with the map, or give another ID for a new one", e.ID, e.Began, e.Task, e.Now)
}

// OtherMapError says that an ID belongs to a map of another task or over other items.
type OtherMapError struct {
	ID, Task, Input string
	Items           int64
	Status          Status
}

// Error says what the ID names.
func (e *OtherMapError) Error() string {
	over := cmp.Or(e.Input, "other items")
	if e.Items >= 0 {
		over = fmt.Sprintf("%d items (%s)", e.Items, over)
	}
	return fmt.Sprintf("map ID %q is taken: it names a map of task %s over %s, %s; give another ID, or that task and input",
		e.ID, e.Task, over, e.Status)
}

// NoStoreError says why the workers' store could not be used from here.
type NoStoreError struct {
	// URL is the workers' store, when they said.
	URL string
	Err error
}

// Error says what to do.
func (e *NoStoreError) Error() string {
	return fmt.Sprintf("%v; give the workers' store", e.Err)
}

// Unwrap gives the cause.
func (e *NoStoreError) Unwrap() error { return e.Err }

// store is the given store, or the workers' own. Its errors are *NoStoreError.
func (s *Starter) store(ctx context.Context) (*store.Store, error) {
	if s.Store != nil {
		return s.Store, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		return s.opened, nil
	}
	offer, err := s.Fleet().Offer(ctx)
	if err != nil {
		return nil, &NoStoreError{Err: err}
	}
	return s.openStore(ctx, offer.Store, offer.Host)
}

// openStore opens the workers' store if it can be the same from here.
func (s *Starter) openStore(ctx context.Context, url, host string) (*store.Store, error) {
	here, _ := os.Hostname()
	switch {
	case url == "":
		return nil, &NoStoreError{Err: errors.New("the workers have no store")}
	case strings.HasPrefix(url, "mem:"):
		return nil, &NoStoreError{URL: url, Err: fmt.Errorf("the workers' store %s is in their memory", url)}
	case strings.HasPrefix(url, "file:") && host != here:
		return nil, &NoStoreError{URL: url, Err: fmt.Errorf("the workers' store %s is a folder of host %s, and this is %s", url, host, here)}
	}
	st, err := store.Open(ctx, url, s.Keys)
	if err != nil {
		return nil, &NoStoreError{URL: url, Err: err}
	}
	s.opened = st
	return st, nil
}

// Holds reports whether a URL is an object in the workers' store.
func (s *Starter) Holds(ctx context.Context, url string) bool {
	st, err := s.store(ctx)
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
