package process

import (
	"crypto/rand"
	"errors"
	"sync"

	"go.uber.org/zap"
)

// Sweeper kills the descendants of its slots' task processes when this program is gone, however it died. It is a small shell that
// waits for that; one that ends is replaced. Its methods may be called from any goroutine. Close ends it. It needs Linux; elsewhere
// it does nothing.
type Sweeper struct {
	token  string
	number uint64
	log    *zap.Logger

	mu     sync.Mutex // guards what follows
	shell  *shell
	closed bool
	done   sync.WaitGroup
}

// NewSweeper makes the sweeper of one worker's slots; its shell starts with the first of their processes. Log may be nil.
func NewSweeper(log *zap.Logger) *Sweeper {
	if log == nil {
		log = zap.NewNop()
	}
	return &Sweeper{token: rand.Text(), number: workerNumber(), log: log}
}

// SharedSweeper is that of the slots that have none of their own.
var SharedSweeper = sync.OnceValue(func() *Sweeper { return NewSweeper(nil) })

// mark makes the marks of a process that is about to start, and sees to it that the shell runs.
func (s *Sweeper) mark() (mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return mark{}, errors.New("the sweeper of this slot's worker is closed; make a new worker")
	case s.shell == nil:
		if err := s.start(); err != nil {
			return mark{}, err
		}
	}
	return mark{rand.Text(), processNumber(s.number), s.number}, nil
}

// Close ends the shell without a sweep and returns when it is gone. The slots have stopped; no process of theirs starts any more.
func (s *Sweeper) Close() {
	s.mu.Lock()
	shell := s.shell
	s.shell, s.closed = nil, true
	s.mu.Unlock()
	if shell != nil {
		shell.end()
	}
	s.done.Wait()
}
