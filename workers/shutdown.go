package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/gpumux/gpumux/workers/pool"
)

// Stop takes no new work, lets running chunks go on for StopTimeout, hands back those that still run, ends every task process
// and returns when nothing is left, or with an error when a process or a driver does not let go. When ctx ends before, running
// chunks are handed back at once. Every call waits for the same end; a worker that never started stops too.
func (w *Worker) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { w.giveUp(pool.ErrStopped) })()
	w.stopOnce.Do(func() {
		w.end()
		w.well.stopping.Store(true)
		go func() {
			defer close(w.stopped)
			w.stopErr = w.shutdown()
		}()
	})
	<-w.stopped
	return w.stopErr
}

// shutdown undoes Start, last thing first.
func (w *Worker) shutdown() error {
	w.starting.Lock() // Start has returned
	defer w.starting.Unlock()
	var errs []error

	var all sync.WaitGroup
	for _, served := range w.serving {
		all.Go(served.Stop)
	}
	all.Wait()

	// The SDK has told the chunks that still run to hand back and does not wait for them. Each needs its process to end.
	limit := w.o.Grace + w.slack
	draining, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for i, s := range w.suppliers {
		if err := s.drain(draining); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: chunks still run %s after the end: %w", w.placements[i].Name, limit, err))
		}
	}
	w.giveUp(pool.ErrStopped)
	if w.guarding != nil {
		w.guarding()
		guarding, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := await(guarding, w.guards.Wait); err != nil {
			errs = append(errs, fmt.Errorf("a driver that is asked about devices has not answered for %s: %w; look at gpumux gpus", limit, err))
		}
	}

	stopping, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	pools := make([]error, len(w.pools))
	for i, p := range w.pools {
		all.Go(func() { pools[i] = p.Stop(stopping) })
	}
	all.Wait()
	errs = append(errs, pools...)
	if w.templates != nil {
		if err := await(stopping, w.templates.Close); err != nil {
			errs = append(errs, fmt.Errorf("a process that others are forked from has not ended %s after it was to: %w", limit, err))
		}
	}

	if w.sweeper != nil && errors.Join(errs...) == nil {
		// What did not end is the sweeper's, once this program has.
		if err := await(stopping, w.sweeper.Close); err != nil {
			errs = append(errs, fmt.Errorf("the sweeper has not ended %s after it was to: %w", limit, err))
		}
	}

	if w.metrics != nil {
		errs = append(errs, w.metrics.Stop(stopping))
	}
	if w.client != nil && w.o.Client == nil {
		w.client.Close()
	}
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	closing, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	closed := make(chan error, 1)
	if err := await(closing, func() { closed <- w.closeInventory() }); err != nil {
		errs = append(errs, fmt.Errorf("the GPU driver has not let go for %s: %w", limit, err))
	} else {
		errs = append(errs, <-closed)
	}
	if w.scratch != "" {
		errs = append(errs, os.RemoveAll(w.scratch))
	}
	return errors.Join(errs...)
}

func (w *Worker) closeInventory() error {
	if w.o.Inventory != nil {
		return nil
	}
	return w.inventory.Close()
}

// await returns when wait does, or with ctx's cause when ctx ends before; wait then goes on by itself.
func await(ctx context.Context, wait func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
