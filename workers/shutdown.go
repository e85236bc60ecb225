package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/pool"
)

// Stop takes no new work, lets chunks go on for StopTimeout, hands back the rest, ends
// every task process and returns when nothing is left, or with an error when something
// does not let go. When ctx ends before, chunks are handed back at once. Every call waits
// for the same end.
func (w *Worker) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { w.giveUp(pool.ErrStopped) })()
	w.stopOnce.Do(func() {
		w.end()
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
	err := w.drain()
	err = errors.Join(err, w.endProcesses())
	if w.metrics != nil {
		ctx, cancel := w.patience()
		defer cancel()
		err = errors.Join(err, w.metrics.Stop(ctx))
	}
	if w.client != nil && w.o.Client == nil {
		w.client.Close()
	}
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	err = errors.Join(err, w.await("the GPU driver has not let go", w.closeInventory))
	return errors.Join(err, os.RemoveAll(w.scratch), w.args.remove())
}

func (w *Worker) drain() error {
	var all sync.WaitGroup
	for _, served := range w.serving {
		all.Go(served.Stop)
	}
	all.Wait()
	// The SDK does not wait for the chunks that it has cancelled.
	ctx, cancel := w.patience()
	defer cancel()
	var errs []error
	for i, s := range w.suppliers {
		if err := s.drain(ctx); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: chunks still run %s after the end: %w", w.placements[i].Name, w.o.Grace+w.slack, err))
		}
	}
	w.giveUp(pool.ErrStopped)
	if w.guarding != nil {
		w.guarding()
		answered := func() error { w.guards.Wait(); return nil }
		if err := w.await("a driver that is asked about devices has not answered", answered); err != nil {
			errs = append(errs, fmt.Errorf("%w; look at gpumux gpus", err))
		}
	}
	return errors.Join(errs...)
}

// endProcesses returns when no process is left; the sweeper ends others later.
func (w *Worker) endProcesses() error {
	ctx, cancel := w.patience()
	defer cancel()
	errs := make([]error, len(w.pools))
	var all sync.WaitGroup
	for i, p := range w.pools {
		all.Go(func() { errs[i] = p.Stop(ctx) })
	}
	all.Wait()
	if w.templates != nil {
		closed := func() error { w.templates.Close(); return nil }
		errs = append(errs, w.await("a process that others are forked from has not ended", closed))
	}
	if w.sharing != nil {
		errs = append(errs, w.await("an MPS daemon has not ended", w.sharing.Close))
	}
	return errors.Join(errs...)
}

// patience is how long Stop waits for a process or a driver.
func (w *Worker) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.o.Grace+w.slack)
}

// await waits for end, as long as patience allows. Later end runs on alone.
func (w *Worker) await(what string, end func() error) error {
	ctx, cancel := w.patience()
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s for %s: %w", what, w.o.Grace+w.slack, context.Cause(ctx))
	}
}

func (w *Worker) closeInventory() error {
	if w.o.Inventory != nil {
		return nil
	}
	return w.inventory.Close()
}

func (w *Worker) starts() error {
	if !w.serves.Load() {
		return errors.New("the worker is starting")
	}
	return nil
}

func (w *Worker) health() error {
	if w.life.Err() != nil {
		return errors.New("the worker is stopping")
	}
	if err := w.starts(); err != nil {
		return err
	}
	return w.asking.answered(w.client, w.identity)
}

type asking struct {
	mu   sync.Mutex
	at   time.Time
	away error
}

const (
	// askLimit bounds a question, askPause comes between two, however many want to know.
	askLimit = 2 * time.Second
	askPause = time.Second
)

// answered returns why the server could give a worker nothing to do now, or nil: for that
// it needs the history of workflows and the queues.
func (a *asking) answered(server client.Client, identity string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) > askPause {
		ctx, cancel := context.WithTimeout(context.Background(), askLimit)
		defer cancel()
		if _, a.away = server.DescribeWorkflowExecution(ctx, "gpumux.health."+identity, ""); !absent(a.away) {
			_, a.away = server.DescribeTaskQueue(ctx, contract.WorkerQueue(identity), enums.TASK_QUEUE_TYPE_ACTIVITY)
		}
		a.at = time.Now()
	}
	if absent(a.away) {
		return fmt.Errorf("the Temporal server has not answered within %s: %w", askLimit, a.away)
	}
	return nil
}
