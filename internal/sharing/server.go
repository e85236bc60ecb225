package sharing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/process"
)

const (
	// endLimit is how long the server may take to release a process that is about to be
	// killed.
	endLimit = 5 * time.Second
	// readyLimit bounds the check whether the server takes clients. A busy host is slow.
	readyLimit = 10 * time.Second
	// recoveryLimit is how long a server may take to come back. stuckLimit is how long the
	// worker's own may stay in fault without clients; then its daemon is replaced.
	recoveryLimit = time.Minute
	stuckLimit    = 5 * time.Second
	// briefly bounds each later attempt to start a daemon again.
	briefly = 5 * time.Second
)

// server is an MPS server and its users. A daemon has one server at a time.
type server struct {
	host   *Host
	daemon mps.Daemon
	// own: the worker started the daemon; mute: nobody can ask it; far: its PIDs differ.
	own, mute, far bool
	log            *zap.Logger

	life context.Context // ends with the worker
	end  context.CancelFunc

	mu       sync.Mutex // guards what follows
	process  *process.Process
	siblings []Sibling
	// turn counts the failures; heard is how much of the daemon's output was read.
	turn     int
	last     *failure
	heard    int64
	patience time.Duration // how long to wait for a server; 0 is recoveryLimit
}

// failure is a failure of the server. It is over when done closes.
type failure struct {
	done chan struct{}
	// there are the device's processes at the failure. first reported it first. named are
	// those that the server's log blames.
	there, named []int
	first        int
}

// over reports whether there is no failure to wait for.
func (f *failure) over() bool {
	if f == nil {
		return true
	}
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// Join is Share's.
func (s *server) Join(other Sibling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.siblings = append(s.siblings, other)
}

// Await returns when the server has no failure to recover from. turn counts the earlier
// ones. If the worker's own daemon is down, Await starts another and fails, so that calls
// go elsewhere.
func (s *server) Await(ctx context.Context) (turn int, err error) {
	for {
		s.mu.Lock()
		turn, last := s.turn, s.last
		s.mu.Unlock()
		switch {
		case last.over() && s.gone():
			s.mu.Lock()
			if s.last == last {
				s.patience = briefly
				s.fail()
			}
			s.mu.Unlock()
			return 0, &gpumux.Fault{Kind: gpumux.FaultDeviceLost, Blameless: true, Suspect: true, Op: "start", Device: s.daemon.Device,
				Message: "the MPS daemon of the device has ended and could not be started again",
				Hint:    "see the worker's log for why; the item runs again elsewhere, and the daemon is tried again"}
		case last.over():
			return turn, nil
		}
		select {
		case <-last.done:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// gone reports whether the worker's own daemon has ended by itself.
func (s *server) gone() bool {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p == nil {
		return false
	}
	select {
	case <-p.Exited:
		return true
	default:
		return false
	}
}

// hear reads the daemon's new output and returns the processes that it blames. The caller
// holds the lock.
func (s *server) hear() (named []int) {
	if s.process == nil { // somebody else's daemon
		return nil
	}
	text, next := s.process.Out.Since(s.heard)
	s.heard = next
	return mps.Culprits(text)
}

// End has the server release the processes: it may take a kill in the middle of a kernel
// for a fault of all. A server that has failed waits for all processes anyway.
func (s *server) End(ours func(pid int) bool) {
	s.mu.Lock()
	failed := !s.last.over()
	s.mu.Unlock()
	if s.mute || s.far || failed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	if err := s.daemon.TerminateThose(ctx, ours); err != nil && !errors.Is(err, mps.ErrNone) {
		s.log.Warn("a process is killed that the MPS server has not let go of", zap.String("why", err.Error()))
	}
}

// Siblings is Share's.
func (s *server) Siblings(ctx context.Context, turn int, fault *gpumux.Fault) {
	s.mu.Lock()
	told := s.turn > turn
	s.mu.Unlock()
	killed := fault.Kind.Deadly() // perhaps in a kernel, if the server did not release it in time
	if !told && !fault.Wide && (!killed || s.ready(ctx)) {
		return
	}
	s.mu.Lock()
	if s.turn == turn {
		s.fail()
	}
	f := s.last
	f.there = append(f.there, fault.PID)
	f.first = cmp.Or(f.first, fault.PID)
	for _, pid := range s.hear() {
		if !slices.Contains(f.named, pid) {
			f.named = append(f.named, pid)
		}
	}
	named, first := slices.Clone(f.named), f.first
	known := len(named) == 1 && slices.Contains(f.there, named[0]) // else the log names nobody, several, or a descendant
	s.mu.Unlock()
	switch {
	case known && named[0] == fault.PID:
		fault.Blameless = false
		return
	case !known && first == fault.PID:
		// A server that is gone is no sign of a sick device.
		fault.Suspect = fault.Suspect && (!fault.Blameless || fault.Kind == gpumux.FaultDeviceLost)
		return
	}
	fault.Blameless, fault.Suspect = true, false
	fault.Hint = "another process on the device ruined the MPS server that they share; the item runs again and loses no attempt"
}

// ready reports whether the server takes clients, as far as that is known.
func (s *server) ready(ctx context.Context) bool {
	if s.mute {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	ready, err := s.daemon.Ready(ctx)
	return ready || err != nil && !errors.Is(err, mps.ErrNone)
}

// fail begins a failure; the caller holds the lock.
func (s *server) fail() {
	f := &failure{done: make(chan struct{})}
	for _, other := range s.siblings {
		f.there = append(f.there, other.PID())
	}
	s.turn++
	s.last = f
	go s.recover(f, slices.Clone(s.siblings), cmp.Or(s.patience, recoveryLimit))
}

// recover ends all processes of the device, and returns when the server is back.
func (s *server) recover(f *failure, siblings []Sibling, patience time.Duration) {
	defer close(f.done)
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	s.log.Warn("the MPS server has failed; all slots on the device get new processes", zap.Int("slots", len(siblings)))
	var all sync.WaitGroup
	for _, other := range siblings {
		all.Go(func() { _ = other.Recycle(ctx, "the MPS server that processes on the device share has failed") }) // it may stop
	}
	all.Wait()
	stuck := time.After(stuckLimit)
	for err := s.back(ctx); err != nil; err = s.back(ctx) {
		select {
		case <-s.life.Done():
			return
		case <-ctx.Done():
			what := "the MPS server has not come back; new processes are tried anyway"
			if s.gone() {
				what = "the MPS daemon could not be started again; calls go elsewhere, and later ones have it tried again"
			}
			s.log.Error(what, zap.Duration("waited", time.Since(began)), zap.Error(err), zap.String("advice", "see nvidia-smi and the kernel's log; start the worker again, or use sharing: default"))
			return
		case <-stuck:
			s.replace()
		case <-time.After(askEvery):
		}
	}
	s.mu.Lock()
	s.hear()
	s.patience = 0
	s.mu.Unlock()
	s.log.Info("the MPS server is back", zap.Duration("after", time.Since(began)))
}

// back says why the server takes no clients, and starts the daemon again if it is gone.
func (s *server) back(ctx context.Context) error {
	if s.gone() {
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	if !s.ready(ctx) {
		return errors.New("it is not active")
	}
	return nil
}

// replace kills the worker's own daemon with its server, so that back starts another.
func (s *server) replace() {
	gone := s.gone()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && !gone {
		s.log.Warn("the MPS server stays in fault although it has no clients; its daemon is replaced")
		s.process.Signal(syscall.SIGKILL)
	}
}

// ended is called when the worker's own daemon has ended: processes would bypass it.
func (s *server) ended(p *process.Process) {
	<-p.Exited
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p {
		return // it was to end, or never answered
	}
	s.log.Error("the MPS daemon has ended; another takes its place", zap.String("why", p.Status.String()))
	if s.last.over() {
		s.fail()
	}
}

// start starts the daemon of a server and returns when it answers.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := os.MkdirAll(s.daemon.Pipe, 0o700); err != nil {
		return fmt.Errorf("make a folder for an MPS daemon: %w", err)
	}
	p, err := process.New(process.Options{Log: s.log})
	if err != nil {
		return fmt.Errorf("start an MPS daemon: %w", err)
	}
	if err := p.Start(process.Command{Argv: s.daemon.Argv(), Dir: s.daemon.Pipe, Env: s.daemon.Environ()}); err != nil {
		return fmt.Errorf("sharing: mps: %w", err)
	}
	p.Follow(func() { go s.ended(p) })
	if err := s.answers(ctx, p); err != nil {
		p.Kill()
		return err
	}
	s.mu.Lock()
	before := s.process
	s.process, s.heard = p, 0
	s.mu.Unlock()
	if before != nil {
		before.Kill()
	}
	select {
	case <-p.Exited:
		s.ended(p)
	default:
	}
	s.log.Info("an MPS daemon serves the device", zap.Int("pid", p.PID), zap.String("pipe", s.daemon.Pipe))
	return nil
}

// answers waits until a new daemon answers.
func (s *server) answers(ctx context.Context, p *process.Process) error {
	for {
		_, err := s.daemon.Servers(ctx)
		if err == nil {
			return s.life.Err()
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("sharing: mps: %s ended (%s): %s; see whether it runs by hand, or use sharing: default", mps.Program, p.Status,
				p.Out.Tail())
		case <-ctx.Done():
			return fmt.Errorf("sharing: mps: %s does not answer: %w", mps.Program, err)
		case <-time.After(askEvery):
		}
	}
}

// stop ends the daemon, if it is the worker's own.
func (s *server) stop() {
	s.end()
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p == nil {
		return
	}
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
