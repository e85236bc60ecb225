package sharing

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/process"
)

const recycleLimit = time.Minute

// server is an MPS server and its users.
type server struct {
	daemon mps.Daemon
	ours   bool // the worker started the daemon
	log    *zap.Logger

	mu       sync.Mutex       // guards what follows
	process  *process.Process // of the worker's own daemon, until it is stopped
	siblings []Sibling
	failed   time.Time // when a fault last reached all
}

func (s *server) Join(other Sibling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.siblings = append(s.siblings, other)
}

// Await starts the worker's own daemon again if it has ended: processes would bypass it.
func (s *server) Await(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return context.Cause(ctx)
	}
	select {
	case <-s.process.Exited:
	default:
		return context.Cause(ctx)
	}
	s.log.Info("the MPS daemon has ended; another takes its place", zap.String("why", s.process.Status.String()))
	if err := s.start(ctx); err != nil {
		return &gpumux.Fault{Kind: gpumux.FaultDeviceLost, Blameless: true, Suspect: true, Op: "start", Device: s.daemon.Device,
			Message: fmt.Sprintf("the MPS daemon of the device has ended and could not be started again: %v", err),
			Hint:    "see the worker's log for why; the item runs again elsewhere, and the daemon is tried again"}
	}
	return nil
}

func (s *server) Siblings(ctx context.Context, began time.Time, whole bool, fault *gpumux.Fault) {
	if !fault.Wide {
		return
	}
	// A server that is gone is no sign of a sick device.
	fault.Suspect = fault.Suspect && (!fault.Blameless || fault.Kind == gpumux.FaultDeviceLost)
	if fault.Alone = fault.Alone && whole; !whole && !fault.Blameless {
		fault.Hint = "it reached every process on the device, and any of them may have caused it; the item runs again with the device to itself"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.failed) {
		return // its process was among those that have been ended
	}
	s.log.Warn("the MPS server has failed; all slots on the device get new processes", zap.Int("slots", len(s.siblings)))
	ctx, cancel := context.WithTimeout(ctx, recycleLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, other := range s.siblings {
		all.Go(func() { _ = other.Recycle(ctx, "the MPS server that processes on the device share has failed") }) // it may stop
	}
	all.Wait()
	if s.process != nil {
		s.quit(s.process) // a server may stay in fault; the next call starts another
	}
	s.failed = time.Now()
}

// start starts the daemon of a server and returns when it answers; the caller holds the
// lock.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := os.MkdirAll(s.daemon.Pipe, 0o700); err != nil {
		return fmt.Errorf("make a folder for an MPS daemon: %w", err)
	}
	p, err := process.New(0, s.log)
	if err != nil {
		return fmt.Errorf("start an MPS daemon: %w", err)
	}
	if err := p.Start(process.Command{Argv: s.daemon.Argv(), Dir: s.daemon.Pipe, Env: s.daemon.Environ()}); err != nil {
		return fmt.Errorf("sharing: mps: %w", err)
	}
	p.Follow(func() {})
	if err := s.answers(ctx, p); err != nil {
		p.Kill()
		return err
	}
	if s.process != nil {
		s.process.Kill()
	}
	s.process = p
	s.log.Info("an MPS daemon serves the device", zap.Int("pid", p.PID), zap.String("pipe", s.daemon.Pipe))
	return nil
}

func (s *server) answers(ctx context.Context, p *process.Process) error {
	for !mps.Listens(s.daemon.Pipe) {
		select {
		case <-p.Exited:
			return fmt.Errorf("sharing: mps: %s ended (%s): %s; see whether it runs by hand, or use sharing: default", mps.Program, p.Status,
				p.Out.Tail())
		case <-ctx.Done():
			return fmt.Errorf("sharing: mps: %s does not answer: %w", mps.Program, context.Cause(ctx))
		case <-time.After(askEvery):
		}
	}
	return nil
}

// stop ends the daemon, if it is the worker's own.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.quit(s.process)
		s.process = nil
	}
}

func (s *server) quit(p *process.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), quitLimit)
	defer cancel()
	if s.daemon.Quit(ctx) == nil {
		select {
		case <-p.Exited:
		case <-ctx.Done():
		}
	}
	p.Kill()
}
