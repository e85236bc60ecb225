package workers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/pool"
)

// tenant is a lease in its seat.
type tenant struct {
	*runner
	seat  *pool.Seat
	lease contract.Lease
	// held ends when the worker must let go of the slot.
	held context.Context
	end  func()

	// Only Run touches what follows, one call at a time. pid is the process that later calls
	// rely on, 0 for none; kept is how many residents it had after the last call.
	pid, kept int
}

// Hold implements activities.Holder.
func (r *runner) Hold(ctx context.Context, lease contract.Lease) (activities.Seat, error) {
	s := &tenant{runner: r, lease: lease}
	s.held, s.end = until(contactOf(ctx), r.halt)
	waiting, stop := until(ctx, r.halt)
	defer stop()
	var err error
	if s.seat, err = r.pool.Acquire(waiting, pool.Want{Lease: true, Holder: lease.Workflow}); err != nil {
		s.end()
		return nil, err
	}
	r.log.Info("a lease has a slot", s.fields()...)
	return s, nil
}

func (s *tenant) fields(more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("workflow", s.lease.Workflow), zap.String("slot", s.seat.Name),
		zap.String("device", s.seat.Group)}, more...)
}

// Held ends when the worker must let go of the slot.
func (s *tenant) Held() context.Context { return s.held }

// Run runs a call in the lease's process.
func (s *tenant) Run(ctx context.Context, call calls.Call, work calls.Work) error {
	task, err := s.tasks.Find(call.Task)
	if err != nil {
		return err
	}
	if len(task.Command) > 0 {
		return &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Task: task.Name, Message: "task " + task.Name + " is a command, which has no process to stay in",
			Hint: "run it in a map, or make it a Python function"}
	}
	ctx, stop := until(ctx, s.held)
	defer stop()
	call.Process = s.pid
	err = s.runIn(ctx, s.held, s.seat, task, call, work, nil)
	if errors.Is(err, calls.ErrGone) {
		err = s.gone()
	}
	if pid := s.seat.PID(); pid != 0 {
		s.pid, s.kept = pid, s.seat.Stats().Residents
	} else if s.kept == 0 && !s.lease.Rebuilt {
		s.pid = 0 // nothing is lost with it: the call's own fault is enough
	}
	return err
}

// gone reports, once, that the process of the earlier calls has ended.
func (s *tenant) gone() *gpumux.Fault {
	what := "what earlier calls left in it is gone"
	if s.kept > 0 {
		what = fmt.Sprintf("the residents that it kept (%d) are gone", s.kept)
	}
	fault := s.fault(gpumux.FaultSlotLost, fmt.Sprintf("the task process %d has ended, and %s", s.pid, what),
		"make them anew; LeaseOptions.Rebuild does so by itself")
	fault.PID = s.pid
	s.pid, s.kept = 0, 0
	return fault
}

func (s *tenant) fault(kind gpumux.FaultKind, message, hint string) *gpumux.Fault {
	return &gpumux.Fault{Kind: kind, Op: "run", Slot: s.seat.Name, Device: s.seat.Group, Host: s.host, Blameless: true, Message: message, Hint: hint}
}

// Where implements activities.Seat.
func (s *tenant) Where() gpumux.Seat {
	stats := s.seat.Stats()
	return gpumux.Seat{Worker: s.identity, Host: s.host, Slot: s.seat.Name, Device: s.seat.Group, Memory: s.seat.Budget,
		Residents: stats.Residents, ResidentBytes: stats.ResidentBytes}
}

// Lost implements activities.Seat.
func (s *tenant) Lost() *gpumux.Fault {
	if s.pool.Cordoned(s.seat.Group) {
		return s.fault(gpumux.FaultDeviceLost, "the device takes no more work", "gpumux gpus says why")
	}
	return nil
}

// Scratch implements activities.Seat.
func (s *tenant) Scratch(name string) (*os.File, error) {
	if _, err := s.tasks.Find(name); err != nil {
		return nil, err
	}
	return os.CreateTemp("", "gpumux-resident-")
}

// Release implements activities.Seat.
func (s *tenant) Release() {
	s.end()
	s.pool.Release(s.seat)
	s.log.Info("a lease has ended", s.fields()...)
}
