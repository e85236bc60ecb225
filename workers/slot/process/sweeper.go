package process

import (
	"crypto/rand"
	"errors"
	"sync"

	"go.uber.org/zap"
)

// Sweeper kills the descendants of its slots' task processes when this program dies, however it does. A small shell waits for that;
// one that ends is replaced. Any goroutine may call its methods. Close ends it. Except on Linux it does nothing.
type Sweeper struct {
	token  string
	number uint64
	log    *zap.Logger

	mu      sync.Mutex // guards what follows
	folders []string
	shell   *shell
	closed  bool
	done    sync.WaitGroup
}

// NewSweeper makes the sweeper of one worker's slots; its shell starts with the first of their processes. Log may be nil.
func NewSweeper(log *zap.Logger) *Sweeper {
	if log == nil {
		log = zap.NewNop()
	}
	return &Sweeper{token: rand.Text(), number: workerNumber(), log: log}
}

// SharedSweeper serves the slots without a sweeper of their own.
var SharedSweeper = sync.OnceValue(func() *Sweeper { return NewSweeper(nil) })

// newMark makes the mark of a new process and starts the shell if none runs.
func (s *Sweeper) newMark() (mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return mark{}, errors.New("the sweeper of this slot's worker is closed; make a new worker")
	}
	if s.shell == nil {
		if err := s.start(); err != nil {
			return mark{}, err
		}
	}
	return mark{rand.Text(), processNumber(s.number), s.number}, nil
}

// Remove lets a folder be removed too when this program dies.
func (s *Sweeper) Remove(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = append(s.folders, folder)
	if s.shell == nil {
		return s.start()
	}
	return s.shell.tell(folder)
}

// Close ends the shell without a sweep and returns when it is gone. The slots must have stopped before.
func (s *Sweeper) Close() {
	s.mu.Lock()
	last := s.shell
	s.shell, s.closed = nil, true
	s.mu.Unlock()
	if last != nil {
		last.kill()
	}
	s.done.Wait()
}
