package workers

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/autoslots"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/health"
	"github.com/gpumux/gpumux/workers/pool"
	"github.com/gpumux/gpumux/workflows"
)

// queue is one task queue to serve.
type queue struct {
	name     string
	options  worker.Options
	register func(worker.Registry)
}

const (
	// Polls in flight: more than a few cost the server and gain nothing.
	mostPolls     = 8
	workflowPolls = 4
	lightPolls    = 4
	// Light activities read and write the store; a merge is bound by it, not by the processor.
	lightActivities = 16
)

// options are what all queues have in common.
func (w *Worker) options(name string) worker.Options {
	return worker.Options{
		DeploymentOptions:      w.config.Temporal.Version(w.o.Version),
		Identity:               w.identity,
		WorkerStopTimeout:      w.o.StopTimeout,
		DisableEagerActivities: true,
		// Cancellation of a map reaches a slot through heartbeats where the server has no faster way.
		MaxHeartbeatThrottleInterval:     contract.HeartbeatEvery,
		DefaultHeartbeatThrottleInterval: contract.HeartbeatEvery,
		OnFatalError: func(err error) {
			w.well.end(fmt.Errorf("queue %s is served no more: %w", name, err))
			w.log.Error("queue is served no more", zap.String(logkey.Queue, name), zap.Error(err))
			select {
			case w.failed <- fmt.Errorf("serve queue %s: %w", name, err):
			default: // the first error is enough
			}
		},
	}
}

// light is the queue of workflows and light activities.
func (w *Worker) light() queue {
	o := w.options(gpumux.Queue)
	o.MaxConcurrentWorkflowTaskPollers = workflowPolls
	o.MaxConcurrentActivityTaskPollers = lightPolls
	o.MaxConcurrentActivityExecutionSize = lightActivities
	return queue{gpumux.Queue, o, func(r worker.Registry) {
		workflows.Register(r)
		(&activities.Light{Store: w.store, Describe: w.Describe}).Register(r)
	}}
}

// polling counts the workers that have asked a queue for work lately; 0 where the server does not say.
func (w *Worker) polling(queue string) func(context.Context) int {
	return func(ctx context.Context) int {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		asked, err := w.client.DescribeTaskQueue(ctx, queue, enums.TASK_QUEUE_TYPE_ACTIVITY)
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

// own is the worker's own queue, so that each worker can be asked, by a workflow where the server has no standalone activities.
func (w *Worker) own() queue {
	name := contract.WorkerQueue(w.identity)
	o := w.options(name)
	o.MaxConcurrentWorkflowTaskPollers = 2
	o.MaxConcurrentActivityTaskPollers = 1
	o.MaxConcurrentActivityExecutionSize = lightPolls
	return queue{name, o, func(r worker.Registry) {
		workflows.Register(r)
		(&activities.Light{Describe: w.Describe}).RegisterDescribe(r)
	}}
}

// queues are the pool's own queue and one per device, which share the pool's slots through one supplier.
func (w *Worker) queues(p config.Placement, pl *pool.Pool, guard *health.Guard, size *autoslots.Sizing) []queue {
	groups := map[string]string{}
	for _, g := range p.Groups {
		groups[gpumux.DeviceQueue(p.Name, w.host, g.Name)] = g.Name
	}
	s := newSupplier(pl, groups)
	pl.Changed = s.wake
	w.suppliers = append(w.suppliers, s)

	serve := func(name, group string, groups int) queue {
		o := w.options(name)
		o.DisableWorkflowWorker = true
		o.MaxConcurrentActivityTaskPollers = min(p.Most*groups, mostPolls)
		o.Tuner = tuner{s}
		run := &runner{
			pool: pl, group: group, tasks: w.tasks, user: p.RunAs, halt: w.halt, contact: w.contact, size: size, allowance: w.memory.Allowance,
			metrics: w.metrics, log: w.log,
			lost: func(group, why string) { guard.Lost(pl, group, why) },
		}
		return queue{name, o, func(r worker.Registry) {
			(&activities.Pool{
				Runner: run, Store: w.store, Recorders: w.recorders, Edition: w.tasks.Edition, Worker: w.identity, Workers: w.polling(name),
				Log:   ownLog(w.log.With(zap.String(logkey.Pool, p.Name))),
				Slots: func() int { return pl.Size() * groups }, Doubt: w.contact.Doubt,
			}).Register(r)
		}}
	}
	out := []queue{serve(gpumux.PoolQueue(p.Name), "", len(p.Groups))}
	for name, group := range groups {
		out = append(out, serve(name, group, 1))
	}
	return out
}

// tuner has the pool's supplier for activities. The rest is never asked for: these queues carry nothing else.
type tuner struct{ activities worker.SlotSupplier }

func (t tuner) GetActivityTaskSlotSupplier() worker.SlotSupplier    { return t.activities }
func (t tuner) GetWorkflowTaskSlotSupplier() worker.SlotSupplier    { return one() }
func (t tuner) GetLocalActivitySlotSupplier() worker.SlotSupplier   { return one() }
func (t tuner) GetNexusSlotSupplier() worker.SlotSupplier           { return one() }
func (t tuner) GetSessionActivitySlotSupplier() worker.SlotSupplier { return one() }

func one() worker.SlotSupplier {
	s, err := worker.NewFixedSizeSlotSupplier(1)
	if err != nil {
		panic(err) // 1 is a valid size
	}
	return s
}
