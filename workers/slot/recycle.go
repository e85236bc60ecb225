package slot

import (
	"context"

	"github.com/gpumux/gpumux/workers/slot/diagnosis"
)

// Recycle ends the slot's process for a reason outside of it, and returns when nothing of it is left. The fault of a call that runs in
// it blames no item; what had finished counts.
func (s *Slot) Recycle(ctx context.Context, why string) error {
	s.mu.Lock()
	s.doomed, s.doomedFor = s.stats.Processes, why
	s.mu.Unlock()
	select {
	case s.doom <- struct{}{}:
	default:
	}
	return s.Clear(ctx)
}

// PID is the number of the slot's process, or 0.
func (s *Slot) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// doomedNow says why the present process is to be ended, or "".
func (s *Slot) doomedNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 || s.doomed != s.stats.Processes {
		return ""
	}
	return s.doomedFor
}

// failDoomed ends the process if it is doomed. On an error it is gone.
func (s *Slot) failDoomed(p *occupant, f *flow) error {
	why := s.doomedNow()
	if why == "" {
		return nil
	}
	if err := s.readBoard(p, f, p.Board.Published()); err != nil {
		return err
	}
	return s.fail(p, &diagnosis.Evidence{Recycled: why}, "")
}
