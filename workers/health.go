package workers

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpumux/gpumux/workers/contact"
)

// liveness is what a worker knows of its own state. Any goroutine may use it.
type liveness struct {
	serving, stopping atomic.Bool

	mu sync.Mutex
	// ended are the errors of the queues that are served no more.
	ended []error
}

// addEnded notes that a queue is served no more.
func (s *liveness) addEnded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, err)
}

// health returns why this worker cannot do its work now, one reason per line, or nil.
func (w *Worker) health() error {
	switch {
	case w.state.stopping.Load():
		return errors.New("the worker is stopping")
	case !w.state.serving.Load():
		return errors.New("the worker is starting")
	}
	w.state.mu.Lock()
	reasons := append([]error(nil), w.state.ended...)
	w.state.mu.Unlock()
	if silent := w.contact.Silence(); silent > contact.Limit {
		reasons = append(reasons, fmt.Errorf("the Temporal server has not answered for %s", silent.Round(time.Second)))
	}
	return errors.Join(reasons...)
}
