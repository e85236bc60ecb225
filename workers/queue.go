package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

type queue struct {
	name     string
	options  worker.Options
	register func(worker.Registry)
}

const (
	// Polls in flight. More than a few cost the server and gain nothing.
	maxPolls      = 8
	workflowPolls = 4
	lightPolls    = 4
	// The store limits light activities, not the processor.
	lightActivities = 16
)

func (w *Worker) options(name string) worker.Options {
	var version worker.DeploymentOptions
	// A deployment's version remembers every queue it ever served, at most a hundred. So
	// queues that name a worker have none; the version's maps reach them all the same.
	if !strings.Contains(name, "@") {
		version = w.config.Temporal.Version(w.o.Version)
	}
	return worker.Options{
		DeploymentOptions:      version,
		Identity:               w.identity,
		WorkerStopTimeout:      w.o.StopTimeout,
		DisableEagerActivities: true,
		Interceptors:           []interceptor.WorkerInterceptor{w.contact},
		// This bounds the pause before the SDK's next heartbeat after a refusal.
		MaxHeartbeatThrottleInterval: 2 * time.Second,
		OnFatalError: func(err error) {
			w.log.Error("queue is served no more", zap.String("queue", name), zap.Error(err))
			select {
			case w.failed <- fmt.Errorf("serve queue %s: %w", name, err):
			default: // the first error is enough
			}
		},
	}
}

func (w *Worker) lightQueue() queue {
	o := w.options(gpumux.Queue)
	o.MaxConcurrentWorkflowTaskPollers = workflowPolls
	// An idle worker asks once at a time; the server says when more would help.
	o.ActivityTaskPollerBehavior = worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: 1, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: lightPolls,
	})
	o.MaxConcurrentActivityExecutionSize = lightActivities
	return queue{gpumux.Queue, o, func(r worker.Registry) {
		workflows.Register(r)
		(&activities.Housekeeping{Store: w.store, Describe: w.Describe, Edition: w.tasks.Edition}).Register(r)
	}}
}

// countPollers counts the workers that ask a queue for work; 0 if that is unknown. Those
// with busy slots only ask the queue of watches.
func (w *Worker) countPollers(name string) func(context.Context) int {
	return func(ctx context.Context) int {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		asked, err := w.client.DescribeTaskQueue(ctx, name, enums.TASK_QUEUE_TYPE_ACTIVITY)
		if err != nil {
			return 0
		}
		workers := map[string]bool{w.identity: true}
		for _, p := range asked.GetPollers() {
			workers[p.GetIdentity()] = true
		}
		return len(workers)
	}
}

// ownQueue serves questions to this worker. On a server without standalone activities a
// workflow asks them.
func (w *Worker) ownQueue() queue {
	name := contract.WorkerQueue(w.identity)
	o := w.options(name)
	o.MaxConcurrentWorkflowTaskPollers = 2
	o.MaxConcurrentActivityTaskPollers = 1
	o.MaxConcurrentActivityExecutionSize = lightPolls
	return queue{name, o, func(r worker.Registry) {
		workflows.Register(r)
		(&activities.Housekeeping{Describe: w.Describe, Edition: w.tasks.Edition}).RegisterDescribe(r)
	}}
}

// poolQueues returns the queues of a pool: of its calls and of watches.
func (w *Worker) poolQueues(p config.Placement, pl *pool.Pool, guard *health.Guard, size *sizing) []queue {
	name := names.PoolQueue(p.Name)
	s := newSupplier(pl.Load)
	pl.Changed = s.wake
	w.suppliers = append(w.suppliers, s)
	o := w.options(name)
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityTaskPollers = min(p.MaxSlots*len(p.Groups), maxPolls)
	o.Tuner = newTuner(s)
	run := &runner{
		pool: pl, tasks: w.tasks, life: w.life, halt: w.halt, args: &w.args, sizing: size,
		metrics: w.metrics, meter: w.meter, price: p.Price, log: w.log, share: func(group string) sharing.Share { return w.shares[shareKey{p.Name, group}] },
		examine: func(ctx context.Context, group string) string { return guard.Examine(ctx, pl, group) },
		crowd:   func(group string) (string, bool) { return guard.Crowd(pl, group) },
	}
	runs := &activities.Pool{
		Runner: run, Store: w.store, Recorders: w.recorders, Edition: w.tasks.Edition, Worker: w.identity, Workers: w.countPollers(contract.WatchQueue(name)),
		Others: func(ctx context.Context, task, edition string) bool {
			return (&fleet.Fleet{Client: w.client}).OthersHave(ctx, contract.WatchQueue(name), w.identity, task, edition)
		},
		Contact: w.config.Contact, Log: quiet(w.log.With(zap.String("pool", p.Name))),
		Slots: func() int { return pl.Size() * len(p.Groups) }, Saving: s.save,
	}
	w.direct[p.Name] = runs
	return []queue{{name, o, func(r worker.Registry) { runs.Register(r) }}, w.watchQueue(pl)}
}

// watchQueue lets maps find out whether anybody serves a pool's queue.
func (w *Worker) watchQueue(pl *pool.Pool) queue {
	name := contract.WatchQueue(names.PoolQueue(pl.Name))
	serves := func() bool { return pl.Load().Slots > 0 }
	o := w.options(name)
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityTaskPollers = 1
	o.Tuner = newTuner(gate(serves))
	return queue{name, o, func(r worker.Registry) {
		(&activities.Watch{Pool: pl.Name, Serves: serves, Runs: func() bool { return pl.Load().Busy > 0 }}).Register(r)
	}}
}

// gate opens a queue only while its pool has a healthy device. It takes no slot.
type gate func() bool

const recheck = time.Second

func (g gate) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	for tick := time.Tick(recheck); !g(); {
		select {
		case <-tick:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &worker.SlotPermit{}, nil
}

// TryReserveSlot refuses: work comes through the queue only.
func (g gate) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit { return nil }

// MarkSlotUsed and ReleaseSlot have nothing to count.
func (g gate) MarkSlotUsed(worker.SlotMarkUsedInfo) {}
func (g gate) ReleaseSlot(worker.SlotReleaseInfo)   {}

// MaxSlots is for metrics: there is no limit.
func (g gate) MaxSlots() int { return 0 }

// newTuner lets a supplier decide about activities, which is all that its queues carry.
func newTuner(s worker.SlotSupplier) worker.WorkerTuner {
	one, err := worker.NewFixedSizeSlotSupplier(1)
	if err != nil {
		panic(err) // 1 is a valid size
	}
	tuner, err := worker.NewCompositeTuner(worker.CompositeTunerOptions{
		ActivitySlotSupplier: s, WorkflowSlotSupplier: one, LocalActivitySlotSupplier: one, NexusSlotSupplier: one, SessionActivitySlotSupplier: one,
	})
	if err != nil {
		panic(err) // all are given
	}
	return tuner
}

// tellVersion says if no map comes to this version of a deployment.
func (w *Worker) tellVersion(ctx context.Context) {
	version := w.config.Temporal.Version(w.o.Version).Version
	if version.DeploymentName == "" {
		return
	}
	found, err := w.client.WorkerDeploymentClient().GetHandle(version.DeploymentName).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	to := found.Info.RoutingConfig
	is := func(v *worker.WorkerDeploymentVersion) bool { return v != nil && *v == version }
	if unknown := errors.As(err, new(*serviceerror.NotFound)); unknown || err == nil && !is(to.CurrentVersion) && !is(to.RampingVersion) {
		w.log.Warn("no new map comes to this version before it is current: temporal worker deployment set-current-version --deployment-name " +
			version.DeploymentName + " --build-id " + version.BuildID)
	}
}
