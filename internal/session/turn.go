package session

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// turns are the starts of task processes that are under way, over all slots: an import of
// a large framework keeps two processors busy, and many at once thrash.
type turns chan struct{}

var starting = make(turns, max(2, runtime.GOMAXPROCS(0)/2))

// turnLimit is how long a start holds up others. One that takes longer mostly waits for a
// disk or a network.
const turnLimit = 20 * time.Second

// take waits until another process may start. Call end when it has started. An error is
// why ctx ended.
func (t turns) take(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-t })
	timer := time.AfterFunc(turnLimit, free)
	return func() { timer.Stop(); free() }, nil
}
