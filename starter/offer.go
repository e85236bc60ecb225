package starter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

// NoStore says why the workers' store could not be used from here.
type NoStore struct {
	// URL is the workers' store, when they said.
	URL string
	Err error
}

// Error says what to do.
func (e *NoStore) Error() string {
	return fmt.Sprintf("%v; give the workers' store with --store URL or GPUMUX_STORE", e.Err)
}

// Unwrap gives the cause.
func (e *NoStore) Unwrap() error { return e.Err }

// NoWorker says that nobody polls a queue.
type NoWorker struct {
	Queue string
	// Task is what was to run there, Pools are those that are served by workers which know it.
	Task  string
	Pools []string
}

// Error says what to start.
func (e *NoWorker) Error() string {
	if len(e.Pools) > 0 {
		return fmt.Sprintf("no worker serves queue %s; task %s is offered on the pool %s: give --pool %s, or start another worker",
			e.Queue, e.Task, strings.Join(e.Pools, ", "), e.Pools[0])
	}
	return fmt.Sprintf("no worker serves queue %s; start one with `gpumux worker -f gpumux.yaml` or `gpumux dev`", e.Queue)
}

// patience is how long a worker may take to say what it offers. One that is there takes milliseconds.
const patience = 10 * time.Second

// Offer asks one worker what it offers: its store, pools and tasks. It takes milliseconds while a worker is there, and is a
// *NoWorker at once when there is none. Where the server has no standalone activities, a workflow asks.
func (s *Starter) Offer(ctx context.Context) (gpumux.Describe, error) {
	rung, err := s.served(ctx, gpumux.Queue)
	if err != nil {
		return gpumux.Describe{}, err
	}
	if !rung.Served() {
		return gpumux.Describe{}, &NoWorker{Queue: gpumux.Queue}
	}
	return s.ask(ctx, gpumux.Queue, patience)
}

// ask asks whoever serves a queue what it offers.
func (s *Starter) ask(ctx context.Context, queue string, patience time.Duration) (gpumux.Describe, error) {
	var offer gpumux.Describe
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const summary = "a client asks what the workers offer"
	id := "gpumux-describe-" + rand.Text()
	var asked interface {
		Get(ctx context.Context, answer any) error
	}
	var err error
	asked, err = s.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: id, TaskQueue: queue, Summary: summary,
		ScheduleToCloseTimeout: patience, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}, contract.DescribeWorker)
	if errors.As(err, new(*serviceerror.Unimplemented)) {
		asked, err = s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: id, TaskQueue: queue, StaticSummary: summary, WorkflowExecutionTimeout: patience,
		}, contract.DescribeWorkflow)
	}
	if err == nil {
		err = asked.Get(ctx, &offer)
	}
	if err != nil {
		return offer, fmt.Errorf("ask a worker what it offers: %w", unseal(err))
	}
	return offer, nil
}

// store is the given store, or the workers' own. Its errors are *NoStore.
func (s *Starter) store(ctx context.Context) (*store.Store, error) {
	if s.Store != nil {
		return s.Store, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		return s.opened, nil
	}
	offer, err := s.Offer(ctx)
	if err != nil {
		return nil, &NoStore{Err: err}
	}
	return s.openStore(ctx, offer.Store, offer.Host)
}

// openStore opens the workers' store when it can be the same one from here; the caller holds mu.
func (s *Starter) openStore(ctx context.Context, url, host string) (*store.Store, error) {
	here, _ := os.Hostname()
	switch {
	case url == "":
		return nil, &NoStore{Err: errors.New("the workers have no store")}
	case strings.HasPrefix(url, "mem:"):
		return nil, &NoStore{URL: url, Err: fmt.Errorf("the workers' store %s is in their memory", url)}
	case strings.HasPrefix(url, "file:") && host != here:
		return nil, &NoStore{URL: url, Err: fmt.Errorf("the workers' store %s is a folder of host %s, and this is %s", url, host, here)}
	}
	st, err := store.Open(ctx, url, s.Keys)
	if err != nil {
		return nil, &NoStore{URL: url, Err: err}
	}
	s.opened = st
	return st, nil
}

// Holds reports whether a URL names an object in the workers' store, so that they read it where it lies.
func (s *Starter) Holds(ctx context.Context, url string) bool {
	st, err := s.store(ctx)
	var away *NoStore
	switch {
	case err == nil:
		_, err = st.Key(url)
		return err == nil
	case errors.As(err, &away) && away.URL != "": // it is out of reach from here, but its URL is known
		folder, _, _ := strings.Cut(away.URL, "?")
		return strings.HasPrefix(url, strings.TrimSuffix(folder, "/")+"/")
	}
	return false
}
