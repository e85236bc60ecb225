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
	"github.com/gpumux/gpumux/internal/contact"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/internal/pool"
)

// seat is a slot that a lease has.
type seat struct {
	*runner
	handle *pool.Handle
	lease  contract.Lease
	// held ends when the worker must let go of the slot.
	held context.Context
	end  func()

	// Runs come one after the other, and nothing else touches what follows. pid is the
	// process that later calls build on, 0 if there is none, kept how many residents it had
	// after the last call.
	pid, kept int
}

// Hold implements activities.Holder.
func (r *runner) Hold(ctx context.Context, lease contract.Lease) (activities.Seat, error) {
	s := &seat{runner: r, lease: lease}
	s.held, s.end = until(contact.Held(ctx), r.halt)
	waiting, stop := until(ctx, r.halt)
	defer stop()
	var err error
	if s.handle, err = r.pool.Acquire(waiting, pool.Want{Group: r.group, Lease: true, Holder: lease.Workflow}); err != nil {
		s.end()
		return nil, err
	}
	r.log.Info("a lease has a slot", s.fields()...)
	return s, nil
}

func (s *seat) fields(more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String(logkey.Workflow, s.lease.Workflow), zap.String(logkey.Slot, s.handle.Name),
		zap.String(logkey.Device, s.handle.Group)}, more...)
}

// Held ends when the worker must let go of the slot.
func (s *seat) Held() context.Context { return s.held }

// Run runs a call in the lease's process.
func (s *seat) Run(ctx context.Context, call calls.Call) error {
	task, err := s.task(call.Task, nil)
	if err != nil {
		return err
	}
	if len(task.Command) > 0 {
		return &gpumux.Fault{Kind: gpumux.BadInput, Op: "start", Task: task.Name, Message: "task " + task.Name + " is a command, which has no process to stay in",
			Hint: "run it in a map, or make it a Python function"}
	}
	ctx, stop := until(ctx, s.held)
	defer stop()
	call.Process = s.pid
	err = s.runIn(ctx, s.held, s.handle, task, call, nil)
	if errors.Is(err, calls.ErrGone) {
		err = s.gone()
	}
	if pid := s.handle.PID(); pid != 0 {
		s.pid, s.kept = pid, s.handle.Stats().Residents
	} else if s.kept == 0 && !s.lease.Rebuilt {
		s.pid = 0 // the fault of the call says all that there is to say
	}
	return err
}

// gone says once that the process is lost on which calls build.
func (s *seat) gone() *gpumux.Fault {
	what := "what earlier calls left in it is gone"
	if s.kept > 0 {
		what = fmt.Sprintf("the residents that it kept (%d) are gone", s.kept)
	}
	fault := s.fault(gpumux.SlotLost, fmt.Sprintf("the task process %d has ended, and %s", s.pid, what),
		"make them anew; LeaseOptions.Rebuild does so by itself")
	fault.PID = s.pid
	s.pid, s.kept = 0, 0
	return fault
}

func (s *seat) fault(kind gpumux.Kind, message, hint string) *gpumux.Fault {
	return &gpumux.Fault{Kind: kind, Op: "run", Slot: s.handle.Name, Device: s.handle.Group, Host: s.host, Blameless: true, Message: message, Hint: hint}
}

// Where implements activities.Seat.
func (s *seat) Where() contract.Seat {
	stats := s.handle.Stats()
	return contract.Seat{Worker: s.identity, Host: s.host, Slot: s.handle.Name, Device: s.handle.Group, Memory: s.handle.Budget,
		Residents: stats.Residents, ResidentBytes: stats.ResidentBytes}
}

// Lost implements activities.Seat.
func (s *seat) Lost() *gpumux.Fault {
	if s.pool.Cordoned(s.handle.Group) {
		return s.fault(gpumux.DeviceLost, "the device takes no more work", "gpumux gpus says why")
	}
	return nil
}

// Scratch implements activities.Seat.
func (s *seat) Scratch(name string) (*os.File, error) {
	task, err := s.task(name, nil)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "gpumux-resident-")
	if err != nil {
		return nil, err
	}
	if u := task.User; u != nil {
		if err := file.Chown(int(u.UID), int(u.GID)); err != nil {
			file.Close()
			os.Remove(file.Name())
			return nil, err
		}
	}
	return file, nil
}

// Release implements activities.Seat.
func (s *seat) Release() {
	s.end()
	s.pool.Release(s.handle)
	s.log.Info("a lease has ended", s.fields()...)
}
