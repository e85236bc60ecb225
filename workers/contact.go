package workers

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
)

const (
	// askEvery is how often the worker asks the server whether it is there.
	askEvery = time.Second
	// silence is how long the server may be silent before the worker gives its running chunks up. Chunks heartbeat at least
	// every second and the server hands one on after ten seconds without: what ran here must be gone by then.
	silence = 8 * time.Second
)

// errSilence ends calls when the server can not be reached: it will give their chunks to others.
var errSilence = errors.New("the Temporal server has been out of reach too long; it gives this chunk to another worker, so it ends here")

// contact ends running calls before the server gives their chunks to another worker, so that no item runs twice at once and
// no two attempts hold device memory together. It never ends the worker: calls run again when the server is back.
type contact struct {
	ask func(context.Context) error
	log *zap.Logger

	mu   sync.Mutex
	ctx  context.Context
	lose context.CancelCauseFunc
}

func newContact(c client.Client, log *zap.Logger) *contact {
	k := &contact{log: log, ask: func(ctx context.Context) error {
		_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	}}
	k.ctx, k.lose = context.WithCancelCause(context.Background())
	return k
}

// held is a context that ends with errSilence when contact is lost.
func (k *contact) held() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ctx
}

// run asks until ctx ends.
func (k *contact) run(ctx context.Context) {
	last, lost := time.Now(), false
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A worker that was stopped for a while itself has been silent as well, whatever the server answers now.
		paused := time.Since(last) > silence && !lost
		asking, cancel := context.WithTimeout(ctx, silence/4)
		err := k.ask(asking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && lost:
			k.log.Info("the Temporal server answers again")
			lost = false
		case err == nil && paused, err != nil && !lost && time.Since(last) > silence:
			k.log.Error("the Temporal server was out of reach; running items are given up, it hands them on",
				zap.Duration("silence", time.Since(last)), zap.Error(err))
			k.give()
			lost = err != nil
		}
		if err == nil {
			last = time.Now()
		}
	}
}

// give ends what is held and begins anew.
func (k *contact) give() {
	k.mu.Lock()
	lose := k.lose
	k.ctx, k.lose = context.WithCancelCause(context.Background())
	k.mu.Unlock()
	lose(errSilence)
}
