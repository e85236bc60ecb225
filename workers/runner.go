package workers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/workers/config"
)

type runner struct {
	pool  *pool.Pool
	tasks *config.Catalog
	// life ends when the worker stops; halt, with pool.ErrStopped, when calls must end.
	life, halt context.Context
	args       *argFiles
	// sizing measures the calls of a pool with slots: auto; nil otherwise.
	sizing  *sizing
	metrics *metrics
	meter   *meter
	price   float64 // an hour of a GPU
	// share is the pool's part of a group.
	share func(group string) sharing.Share
	// examine says why the devices of a group take no more work after a fault, or "" if they
	// do.
	examine func(ctx context.Context, group string) string
	// crowd says what others hold on a group's devices, and whether it takes no more work
	// because they leave less than a slot's budget.
	crowd func(group string) (text string, full bool)
	log   *zap.Logger
}

// Run looks the task up, waits for a slot and runs the call in it. The error is a
// *gpumux.Fault when the task is unknown, its process died or no device is left, and
// ctx's cause when ctx ended.
func (r *runner) Run(ctx context.Context, call calls.Call, work calls.Work) error {
	task, done, err := r.task(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	held := contactOf(ctx) // ctx ends with it
	ctx, cancel := until(ctx, r.halt)
	defer cancel()

	h, err := r.acquire(ctx, call, task)
	if err != nil {
		return err
	}
	defer r.pool.Release(h)
	stint := r.sizing.Begin(h, task.Name, call.Edition, call.Whole)
	defer stint.End()
	share := r.share(h.Group)
	if err := share.Await(ctx); err != nil {
		return err
	}
	began, metering := time.Now(), r.meter.Begin(h.Devices)
	defer func() { work.Used(metering.End(r.price)) }()
	if err := checkContact(held); err != nil {
		return err
	}
	call.Task = task.Name
	if call.Whole {
		r.log.Info("a call has a device to itself; its neighbours wait", zap.String("pool", r.pool.Name),
			zap.String("device", h.Group), zap.String("task", task.Name))
		for _, beside := range h.Beside {
			if err := beside.Clear(ctx); err != nil {
				return err
			}
		}
	}
	granted := r.granted(held, h, call)
	granted.Work = &counted{Work: work, runner: r, seat: h, stint: stint, use: &metering.use, took: r.metrics.items.WithLabelValues(r.pool.Name), rest: remainder{left: call.Len}}
	err = h.Run(ctx, task, granted)
	if r.endedWithWorker(err) {
		return pool.ErrStopped
	}
	if fault, ok := errors.AsType[*gpumux.Fault](err); ok {
		share.Siblings(ctx, began, call.Whole, fault)
		r.examineDevice(ctx, h, fault)
	}
	if err != nil {
		// If the server has handed the chunk on meanwhile, no item is to blame.
		err = cmp.Or(checkContact(held), err)
	}
	if fault, ok := errors.AsType[*gpumux.Fault](err); ok && !fault.Repeated {
		h.Faults.Add(1)
		r.report(task.Name, fault)
		stint.Failed(fault.Kind)
	}
	return err
}

// hearLimit is how much later the worker may hear of a signal than its processes.
const hearLimit = time.Second

// endedWithWorker reports whether a process ended because the worker is to end: systemd
// and some Slurms send SIGTERM to all that they started.
func (r *runner) endedWithWorker(err error) bool {
	if fault, ok := errors.AsType[*gpumux.Fault](err); ok && fault.Kind == gpumux.FaultCrash && fault.Exit == "signal SIGTERM" {
		select {
		case <-r.life.Done():
			return true
		case <-time.After(hearLimit):
		}
	}
	return false
}

func (r *runner) acquire(ctx context.Context, call calls.Call, task launch.Task) (*pool.Seat, error) {
	if call.Patience > 0 && !call.Whole {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, call.Patience, activities.ErrBusy)
		defer stop()
	}
	return r.pool.Acquire(ctx, pool.Want{Task: task.Name, Whole: call.Whole, Avoid: call.Avoid, Holder: call.Map, Shares: shares(call, task)})
}

// task finds the task of a call, and adds the call's argument, which is there until done.
func (r *runner) task(ctx context.Context, call calls.Call) (task launch.Task, done func(), err error) {
	task, err = r.tasks.Find(call.Task)
	if err != nil || call.Arg == nil && call.ArgFile == "" {
		return task, func() {}, err
	}
	// A process with another argument has another environment, so it is not used again.
	task.Env = maps.Collect(maps.All(task.Env)) // where Clone leaves nil
	done, err = r.args.set(ctx, task.Env, call)
	return task, done, err
}

// shares is the same for calls that may share a process, if their task can.
func shares(call calls.Call, task launch.Task) string {
	if call.Whole || call.Clean || call.Apart || call.Mode == gpumux.ModeFresh {
		return ""
	}
	return strings.Join([]string{call.Task, string(call.Mode), task.Env[argText], task.Env[argFile]}, "\x00")
}

// until is a context that also ends with another one, and with its cause.
func until(ctx, end context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(end, func() { cancel(context.Cause(end)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// granted adds to a call what its slot and its process may have.
func (r *runner) granted(held context.Context, h *pool.Seat, call calls.Call) slot.Call {
	granted := slot.Call{Call: call, Held: func() error { return checkContact(held) }, Spare: r.pool.Spare}
	if call.Whole {
		granted.Env, granted.Room = h.Limits()
		granted.Memory = h.Memory
	}
	return granted
}

type counted struct {
	calls.Work
	runner *runner
	seat   *pool.Seat
	stint  *stint
	use    *gpumux.GPUUse
	took   prometheus.Observer
	rest   remainder
}

func (c *counted) Done(d calls.Done) {
	if c.seat.Devices[0] != gpu.CPU {
		d.GPUs = len(c.seat.Devices)
	}
	c.use.Busy, c.use.Items = c.use.Busy+gpumux.Duration(d.Busy), c.use.Items+1
	c.seat.ObservePeak(d.Peak)
	c.took.Observe(d.Busy.Seconds())
	if c.rest.soon(d.Busy) {
		c.runner.pool.Ending(c.seat)
	}
	if d.Fault != nil {
		c.seat.Faults.Add(1)
		c.runner.metrics.Fault(c.runner.pool.Name, d.Fault.Kind)
	}
	c.stint.Done(d.Peak)
	c.Work.Done(d)
}

type remainder struct {
	left, done int64
	busy       time.Duration
	reported   bool
}

const (
	// fetchAhead is how long before the likely end of a call the next one is fetched: as
	// long as a busy server takes. For items over longItem that gains nothing.
	fetchAhead = 300 * time.Millisecond
	longItem   = time.Second
)

// soon books an item that took so long, and reports once that the call ends soon.
func (r *remainder) soon(took time.Duration) bool {
	r.left--
	r.done++
	r.busy += took
	mean := r.busy / time.Duration(r.done)
	if r.reported || r.left < 1 || mean > longItem || r.left > 1 && time.Duration(r.left)*mean > fetchAhead {
		return false
	}
	r.reported = true
	return true
}

func (r *runner) report(task string, fault *gpumux.Fault) {
	r.metrics.Fault(r.pool.Name, fault.Kind)
	if fault.Edition != "" {
		return // whose chunk it was says so
	}
	r.log.Warn("a call failed", zap.String("pool", r.pool.Name), zap.String("slot", fault.Slot),
		zap.String("device", fault.Device), zap.String("task", task), zap.String("kind", string(fault.Kind)),
		zap.Int("pid", fault.PID), zap.String("fault", fault.Error()))
}

// examineDevice makes a fault the device's, not the item's, if a probe finds it sick or
// others fill it.
func (r *runner) examineDevice(ctx context.Context, h *pool.Seat, fault *gpumux.Fault) {
	if fault.Kind == gpumux.FaultDeviceOOM {
		if text, full := r.crowd(h.Group); text != "" {
			fault.Message += "; " + text
			// Where others hold less, it may still run on another device.
			fault.Blameless, fault.Suspect = full, true
			if full {
				fault.Hint = "the device gets no more work until they leave room, and the item runs again elsewhere, or then: end what " +
					"else uses it, or give slots a smaller memory"
			}
			return
		}
	}
	if !fault.Suspect {
		return
	}
	if why := r.examine(ctx, h.Group); why != "" {
		fault.Kind, fault.Blameless, fault.Suspect = gpumux.FaultDeviceLost, true, false
		fault.Message += "; " + why
		fault.Hint = "the device gets no more work until a probe of it passes; the item runs again elsewhere"
	}
}
