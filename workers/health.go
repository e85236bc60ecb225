package workers

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpumux/gpumux/workers/contact"
)

// standing is what a worker knows of its own state without asking anybody. Any goroutine may use it.
type standing struct {
	serving, stopping atomic.Bool

	mu sync.Mutex
	// ended has the error of each queue that is served no more.
	ended []error
}

// end notes that a queue is served no more.
func (s *standing) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, err)
}

// health says why this worker cannot do its work now, one reason per line, or nil.
func (w *Worker) health() error {
	switch {
	case w.well.stopping.Load():
		return errors.New("the worker is stopping")
	case !w.well.serving.Load():
		return errors.New("the worker is starting")
	}
	w.well.mu.Lock()
	reasons := append([]error(nil), w.well.ended...)
	w.well.mu.Unlock()
	if silent := w.contact.Silence(); silent > contact.Lease {
		reasons = append(reasons, fmt.Errorf("the Temporal server has not answered for %s", silent.Round(time.Second)))
	}
	return errors.Join(reasons...)
}
