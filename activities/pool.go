package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

// elsewhereDelay is the longest pause before work of another edition of the code is
// handed on. The first ones are short: most fleets are small.
const elsewhereDelay = time.Second

// Pool serves the queue of one pool.
type Pool struct {
	Runner Runner
	Store  *store.Store
	// Recorders are shared by all pools of a worker.
	Recorders *record.Recorders
	// The map sizes its window by Worker and Slots. The number of slots may change. Nil
	// tells the map nothing.
	Worker string
	Slots  func() int
	// Edition returns the edition of a task's code, or a *gpumux.Fault for an unknown task.
	Edition func(task string) (string, error)
	// Contact is how long items run on without the server. Default: contract.Contact.
	Contact gpumux.Duration
	// Workers is how many workers serve the queue, and busy ones too; 0: not known. Others
	// reports whether one of the others has an edition of a task's code. Default: there is
	// only this one.
	Workers func(ctx context.Context) int
	Others  func(ctx context.Context, task, edition string) bool
	// Log is for what people should know of faults. Default: the SDK's.
	Log log.Logger
	// Saving is called when a chunk needs no slot any more, and what it returns when the
	// chunk is over. Default: nobody is told.
	Saving func() (saved func())
}

// Register registers RunChunk and FindEdition.
func (p *Pool) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(p.runChunk), activity.RegisterOptions{Name: contract.RunChunk})
	r.RegisterActivityWithOptions(checked(p.findEdition), activity.RegisterOptions{Name: contract.FindEdition})
}

func (p *Pool) findEdition(ctx context.Context, in contract.EditionInput) (contract.Edition, error) {
	edition, err := p.Edition(in.Task)
	if fault, ok := errors.AsType[*gpumux.Fault](err); ok {
		return contract.Edition{}, final(fault)
	}
	if err != nil {
		return contract.Edition{}, err
	}
	found := contract.Edition{Edition: edition, Contact: p.Contact}
	if p.Workers != nil && p.Slots != nil {
		found.Slots = p.Workers(ctx) * p.Slots()
	}
	return found, nil
}

// elsewhere is the error for work of an edition that this worker does not have, or whose
// code has changed meanwhile where any is wanted (empty). Another worker may have it: the
// work goes back for as long as one does, and some times where that is not known. Tries
// counts the workers that have refused it in a row.
func (p *Pool) elsewhere(ctx context.Context, fault *gpumux.Fault, wanted string, tries int) error {
	switch {
	case wanted == "" && tries < recovery.MaxRefused:
		return quietly(retry(fault, retryDelay))
	case wanted == "" || p.Workers == nil || p.Workers(ctx) == 1:
		return final(fault)
	case tries%recovery.MaxRefused == 0 && !p.Others(ctx, fault.Task, wanted):
		return final(fault)
	}
	if tries%recovery.MaxRefused == 0 {
		activity.GetLogger(ctx).Warn("the code here is not what the map began with; another worker may have it",
			"task", fault.Task, "edition", fault.Edition, "fault", fault.Error(), "tries", tries)
	}
	return quietly(retry(fault, min(elsewhereDelay, retryDelay<<min(tries, 6))))
}

// ErrBusy ends a call that got no slot within its Patience.
var ErrBusy = errors.New("no slot of the worker became free in time")

// Runner runs calls in slots.
type Runner interface {
	// Run blocks until a slot is free and the call has ended. It may be called from many
	// goroutines. A *gpumux.Fault as error ends the call: with Op "start" no item is to
	// blame, otherwise the first item without a result is; no later item has run, and with
	// an Edition that is the one which is there instead of the call's. When ctx ends, the
	// process is gone before Run returns.
	Run(ctx context.Context, call calls.Call, work calls.Work) error
}

// Watch serves the queue on which maps ask whether anybody serves a pool.
type Watch struct {
	Pool string
	// Serves reports whether a device of the pool works on this worker, Runs whether calls
	// run there, as they do to their end on a device that gets no more of them.
	Serves, Runs func() bool
}

// Register registers WatchPool.
func (w *Watch) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(w.watchPool), activity.RegisterOptions{Name: contract.WatchPool})
}

const watchEvery = 2 * time.Second

// watchPool runs for as long as a device of the pool works, or calls run there. Then it
// fails, and another worker may go on.
func (w *Watch) watchPool(ctx context.Context, in contract.WatchInput) (bool, error) {
	every, stop, stopping := watchEvery, activity.GetWorkerStopChannel(ctx), false
	defer heartbeat(ctx)()
	for {
		if !w.Runs() && (stopping || !w.Serves()) {
			return false, retry(&gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "start", Message: "pool " + w.Pool + " has no healthy device here"}, 0)
		}
		if in.Once {
			return true, nil
		}
		select {
		case <-time.After(every):
		case <-stop:
			// The worker waits for this activity, too.
			stop, stopping, every = nil, true, 100*time.Millisecond
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if temporal.IsCanceledError(cause) || errors.Is(cause, context.Canceled) {
				// The caller has its answer. An error would only reach the worker's log.
				cause = nil
			}
			return false, cause
		}
	}
}
