// Package template keeps processes that have imported a task, and forks fresh ones.
//
// It owns which templates there are, and which tasks must not be forked. A template runs
// no item. Forked processes outlive their template. It stops when Close returns.
package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
)

const (
	idleLimit = 3 * time.Minute
	// forkLimit bounds a fork and the start of the child. Both take milliseconds.
	forkLimit = 10 * time.Second
	// forkTries is how many templates a call tries before it gives up on forks.
	forkTries = 3
	// unfitLimit is how long a task is not forked after its import left something that a
	// fork would break. failedLimit is the same after a failure that may pass.
	unfitLimit  = 24 * time.Hour
	failedLimit = 5 * time.Minute
)

// Set holds the templates of one worker: one per task, device and budget. Slots share
// them. Its methods may be called from any goroutine. Close ends it.
type Set struct {
	// Notices is set before the first Fork. Default: nobody keeps them.
	Notices *notice.List
	log     *zap.Logger

	mu     sync.Mutex // guards what follows
	known  map[string]*template
	closed bool
	all    sync.WaitGroup
}

// ErrNone tells the caller to start a new interpreter. The log has the cause.
var ErrNone = errors.New("no template")

// NewSet has no template yet; log may be nil.
func NewSet(log *zap.Logger) *Set {
	return &Set{log: cmp.Or(log, zap.NewNop()), known: map[string]*template{}}
}

// Close ends all templates and waits for them. Forked processes stay.
func (ts *Set) Close() {
	ts.mu.Lock()
	ts.closed = true
	for _, t := range ts.known {
		t.stop()
	}
	ts.mu.Unlock()
	ts.all.Wait()
}

// Child is a forked process. Edition is the edition of its template's code.
type Child struct {
	Session *session.Session
	Edition string
	from    *template
}

// Unready records why the child did not get ready, and stops forks of the task for a
// while.
func (c *Child) Unready(e *diagnosis.Evidence) {
	why := e.Message
	if why == "" && c.Session.Process.Status != nil {
		why = c.Session.Process.Status.String()
	}
	c.from.refuse("a forked process did not get ready: "+why, failedLimit)
}

// Fork returns a process that has imported the task; edition is its code's edition now.
// On ErrNone the caller starts a new interpreter; any other error ends the call.
func (ts *Set) Fork(ctx context.Context, task launch.Task, o session.Options, edition string) (*Child, error) {
	if !process.Dedicated() || task.Python == "" || task.Fresh == launch.Spawn {
		return nil, ErrNone
	}
	for tries := 1; ; tries++ {
		t := ts.current(task, o, edition)
		if t == nil {
			return nil, ErrNone
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if t.process == nil {
			return nil, ErrNone
		}
		o.StartLimit = min(o.StartLimit, forkLimit)
		p, err := t.fork(task, o)
		switch {
		case err == nil:
			return &Child{p, t.edition, t}, nil
		case process.Scarce(err): // a new interpreter will fail too, and its fault says why
			return nil, ErrNone
		case tries == forkTries:
			t.refuse(err.Error(), failedLimit)
			return nil, ErrNone
		}
		t.stop()
	}
}

// current returns this edition's template, starting one if needed; its import may go on.
// It returns nil if the task must not be forked.
func (ts *Set) current(task launch.Task, o session.Options, edition string) *template {
	key, now := keyOf(task, o), time.Now()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.known[key]
	same := t != nil && t.edition == edition
	switch {
	case ts.closed || same && t.refused.After(now):
		return nil
	case !same || t.stopping():
		if t != nil {
			t.stop()
		}
		maps.DeleteFunc(ts.known, func(_ string, other *template) bool { return other.stopping() && !other.refused.After(now) })
		t = newTemplate(ts, task, o, edition)
		ts.known[key] = t
		ts.all.Go(t.live)
	}
	return t
}

// refuse ends the template. Another is not started within limit, unless the code changes.
func (t *template) refuse(why string, limit time.Duration) {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.stop()
	if t.refused.IsZero() {
		t.all.Notices.Warn(t.all.log, fmt.Sprintf("fresh items of a task get a new interpreter each for %s, which is slow: it cannot be forked", limit),
			zap.String("task", t.task.Name), zap.String("device", t.o.Device), zap.String("why", why),
			zap.String("advice", "or set fresh: spawn for the task, which ends this message"))
	}
	t.refused = time.Now().Add(limit)
}

// keyOf encodes everything that an import can depend on.
func keyOf(task launch.Task, o session.Options) string {
	key, _ := json.Marshal([]any{task, o.Device, o.Memory, o.Env, o.Runtime})
	return string(key)
}
