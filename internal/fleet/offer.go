package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

type NoWorkerError struct {
	Queue string
	// Task was to run there; Pools are served by workers that know it.
	Task  string
	Pools []string
}

func (e *NoWorkerError) Error() string {
	if len(e.Pools) > 0 {
		return fmt.Sprintf("no worker serves queue %s; task %s is offered on the pool %s: give the pool %s, or start another worker",
			e.Queue, e.Task, strings.Join(e.Pools, ", "), e.Pools[0])
	}
	return fmt.Sprintf("no worker serves queue %s; start one with `gpumux worker -f gpumux.yaml` or `gpumux dev`", e.Queue)
}

// Offer asks one worker what it offers. Without any it is a *NoWorkerError at once.
func (f *Fleet) Offer(ctx context.Context) (contract.WorkerInfo, error) {
	rung, err := f.Rung(ctx, gpumux.Queue)
	if err != nil {
		return contract.WorkerInfo{}, err
	}
	if !rung.Served() {
		return contract.WorkerInfo{}, &NoWorkerError{Queue: gpumux.Queue}
	}
	return f.describe(ctx, gpumux.Queue, 10*time.Second)
}

// describe asks a queue's worker what it offers; input is a contract.DescribeInput.
func (f *Fleet) describe(ctx context.Context, queue string, patience time.Duration, input ...any) (offer contract.WorkerInfo, err error) {
	if err = f.ask(ctx, queue, patience, &offer, input); err != nil {
		err = fmt.Errorf("ask a worker what it offers: %w", WithCodecHint(err))
	}
	return offer, err
}

// ask runs DescribeWorker on a queue, or a workflow that does where servers lack
// activities of their own.
func (f *Fleet) ask(ctx context.Context, queue string, patience time.Duration, offer *contract.WorkerInfo, input []any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const summary = "a client asks a worker"
	id := "gpumux-ask-" + rand.Text()
	var asked interface {
		Get(ctx context.Context, answer any) error
	}
	asked, err := f.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: id, TaskQueue: queue, Summary: summary,
		ScheduleToCloseTimeout: patience, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}, contract.DescribeWorker, input...)
	if errors.As(err, new(*serviceerror.Unimplemented)) {
		asked, err = f.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: id, TaskQueue: queue, StaticSummary: summary, WorkflowExecutionTimeout: patience,
		}, contract.DescribeWorkflow, input...)
	}
	if err != nil {
		return err
	}
	return asked.Get(ctx, offer)
}

// Offers asks workers what they offer, and leaves silent ones out.
func (f *Fleet) Offers(ctx context.Context, workers []string) []contract.WorkerInfo {
	return offersOf(f.askAll(ctx, workers, 3*time.Second))
}

func (f *Fleet) AllOffers(ctx context.Context) []contract.WorkerInfo {
	workers, _ := f.Workers(ctx) // without any, nobody has work
	return offersOf(workers)
}

// OthersHave reports whether a worker has an edition of a task's code that serves a queue
// now beside one worker, in the same version of a deployment: others do not get the same
// work. One may have it where the server does not answer.
func (f *Fleet) OthersHave(ctx context.Context, queue, worker, task, edition string) bool {
	answer, err := f.Client.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return true
	}
	version := ""
	for _, poller := range answer.GetPollers() {
		if poller.GetIdentity() == worker {
			version = poller.GetDeploymentOptions().GetBuildId()
		}
	}
	ctx, found := context.WithCancel(ctx)
	defer found()
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for _, poller := range answer.GetPollers() {
		identity := poller.GetIdentity()
		if identity != worker && poller.GetDeploymentOptions().GetBuildId() == version && time.Since(poller.GetLastAccessTime().AsTime()) < stale {
			asking.Go(func() error {
				offer, err := f.describe(ctx, contract.WorkerQueue(identity), answering, contract.DescribeInput{Task: task})
				if err == nil && offer.Edition == edition {
					found()
				}
				return nil
			})
		}
	}
	_ = asking.Wait() // a silent worker is none
	return ctx.Err() != nil
}

func offersOf(workers []Worker) (offers []contract.WorkerInfo) {
	for _, w := range workers {
		if w.Offer != nil {
			offers = append(offers, *w.Offer)
		}
	}
	return offers
}

// Running are the items of a map that workers run, the longest first.
func Running(offers []contract.WorkerInfo, id string) (found []gpumux.RunningItem) {
	for _, offer := range offers {
		for _, p := range offer.Pools {
			for _, seat := range p.Seats {
				item := gpumux.RunningItem{Index: -1, Worker: offer.Identity, Slot: seat.Name, Device: seat.Device,
					For: seat.For, Progress: seat.Progress}
				switch {
				case seat.Map != id, seat.Item == nil && seat.State != "starting":
					continue
				case seat.State != "starting":
					item.Index = *seat.Item
				}
				found = append(found, item)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b gpumux.RunningItem) int { return cmp.Compare(b.For, a.For) })
	return found
}

// Sick says why each device for a step gets no work, if no worker has a healthy one.
func Sick(offers []contract.WorkerInfo, in gpumux.MapInput) (why []string) {
	for _, step := range in.Steps() {
		for _, text := range unhealthy(offers, step.Rungs()) {
			if !slices.Contains(why, text) {
				why = append(why, text)
			}
		}
	}
	return why
}

func unhealthy(offers []contract.WorkerInfo, ladder []string) (why []string) {
	for _, offer := range offers {
		for _, p := range offer.Pools {
			if !slices.Contains(ladder, p.Name) {
				continue
			}
			for _, d := range p.Devices {
				reason, cordoned := p.Cordoned[d]
				if !cordoned {
					return nil
				}
				why = append(why, fmt.Sprintf("device %s of pool %s at %s gets no work: %s", d, p.Name, offer.Identity, reason))
			}
		}
	}
	return why
}
