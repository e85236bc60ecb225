package workers

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/pool"
)

// seat is a slot that a lease has.
type seat struct {
	*runner
	handle *pool.Handle
	lease  contract.Lease
	// held ends when the worker must let go of the slot.
	held context.Context
	end  func()

	mu sync.Mutex // guards what follows
	// pid is the lease's process after the last call that left one, kept how many residents it had then.
	pid, kept int
}

// Hold implements activities.Holder.
func (r *runner) Hold(ctx context.Context, lease contract.Lease) (activities.Seat, error) {
	s := &seat{runner: r, lease: lease}
	contact := r.contact.Held()
	s.held, s.end = r.within(context.Background(), contact)
	waiting, stop := r.within(ctx, contact)
	defer stop()
	var err error
	if s.handle, err = r.pool.Acquire(waiting, pool.Want{Group: r.group, Lease: true}); err != nil {
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
func (s *seat) Run(ctx context.Context, call activities.Call) error {
	task, err := s.task(call.Task)
	if err != nil {
		return err
	}
	ctx, stop := s.within(ctx, s.held)
	defer stop()
	err = s.runIn(ctx, s.held, s.handle, task, call, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid := s.handle.PID(); pid != 0 {
		s.pid, s.kept = pid, s.handle.Stats().Residents
	}
	return err
}

// Where implements activities.Seat.
func (s *seat) Where() contract.Seat {
	stats := s.handle.Stats()
	return contract.Seat{Worker: s.identity, Host: s.host, Slot: s.handle.Name, Device: s.handle.Group, Memory: s.handle.Budget,
		Residents: stats.Residents, ResidentBytes: stats.ResidentBytes}
}

// Lost implements activities.Seat.
func (s *seat) Lost() *gpumux.Fault {
	s.mu.Lock()
	pid, kept := s.pid, s.kept
	s.mu.Unlock()
	fault := &gpumux.Fault{Kind: gpumux.SlotLost, Op: "run", Slot: s.handle.Name, Device: s.handle.Group, Host: s.host, Blameless: true}
	switch {
	case s.pool.Cordoned(s.handle.Group):
		fault.Kind, fault.Message = gpumux.DeviceLost, "the device takes no more work"
		fault.Hint = "gpumux gpus says why"
		return fault
	case kept > 0 && s.handle.PID() != pid:
		s.mu.Lock()
		s.pid, s.kept = 0, 0
		s.mu.Unlock()
		fault.PID = pid
		fault.Message = fmt.Sprintf("the task process %d ended, and the %d residents that it kept with it", pid, kept)
		fault.Hint = "keep them again; LeaseOptions.Rebuild does so by itself"
		return fault
	}
	return nil
}

// Scratch implements activities.Seat.
func (s *seat) Scratch(name string) (*os.File, error) {
	task, err := s.task(name)
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
