// Package template keeps processes with an imported task, and forks fresh ones off.
//
// It owns which templates there are, and when a task bears no fork. A template runs no
// item, and what was forked stays when it ends. It stops when Close returns.
package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
)

const (
	// idleLimit is how long a template stays that nobody asks for a child.
	idleLimit = 3 * time.Minute
	// forkLimit bounds a fork and the start of the child. Both take milliseconds.
	forkLimit = 10 * time.Second
	// strikeLimit is how many children in a row may fail before none are forked.
	strikeLimit = 3
	// refusalLimit is how long nothing is forked after failures that may pass.
	refusalLimit = 5 * time.Minute
	// spareTemplates is how many templates there are at most beside one for each slot.
	spareTemplates = 4
)

// Set are the templates of one worker, which its slots share: one per task, device and
// budget. Its methods may be called from any goroutine. Close ends it.
type Set struct {
	log *zap.Logger

	mu     sync.Mutex // guards what follows
	known  map[string]*lineage
	slots  int
	closed bool
	all    sync.WaitGroup
}

// lineage are the templates of one task on one device, one after the other.
type lineage struct {
	now *template
	// asking is how many want a child of now, used when one last did.
	asking int
	used   time.Time
	// strikes counts the children in a row that did not get ready; refusal is why none are
	// forked, while the task's code has the edition, and until then, if that is set.
	strikes int
	refusal string
	edition string
	until   time.Time
}

// errAskAgain says that another child may do.
var errAskAgain = errors.New("ask again")

// ErrNone says that a new interpreter is to be started instead; why was logged.
var ErrNone = errors.New("no template")

// NewSet has no template yet; log may be nil.
func NewSet(log *zap.Logger) *Set {
	if log == nil {
		log = zap.NewNop()
	}
	return &Set{log: log, known: map[string]*lineage{}}
}

// Close ends all templates and waits for them. What was forked stays.
func (ts *Set) Close() {
	ts.mu.Lock()
	ts.closed = true
	for _, l := range ts.known {
		if l.now != nil {
			l.now.stop()
		}
	}
	ts.mu.Unlock()
	ts.all.Wait()
}

// Fork gives a process that has imported the task. ErrNone: start a new interpreter.
// *UnimportedError: the import failed. Any other error is why the call ended.
func (ts *Set) Fork(ctx context.Context, task launch.Task, o session.Options) (*Child, error) {
	if !possible || task.Python == "" || task.Fresh == launch.Spawn {
		return nil, ErrNone
	}
	for range strikeLimit {
		now, err := task.Edition(ctx, o.StartLimit)
		if err != nil {
			return nil, err
		}
		t := ts.of(task, o, now)
		if t == nil {
			return nil, ErrNone
		}
		c, err := ts.ask(ctx, t, task, o)
		ts.asked(t)
		if !errors.Is(err, errAskAgain) {
			return c, err
		}
	}
	return nil, ErrNone
}

// ask waits for a template and asks it for a process. Its errors are Fork's or
// errAskAgain.
func (ts *Set) ask(ctx context.Context, t *template, task launch.Task, o session.Options) (*Child, error) {
	select {
	case <-t.ready:
	case <-t.lingering:
		return nil, ErrNone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case t.failure != nil:
		return nil, t.failure
	case t.process == nil:
		return nil, ErrNone
	}
	now, err := task.Edition(ctx, o.StartLimit)
	if err != nil {
		return nil, err
	}
	var p *session.Session
	if now == t.edition {
		o.StartLimit = min(o.StartLimit, forkLimit)
		p, err = t.fork(task, o)
	} else {
		err = errStale
	}
	switch {
	case err == nil:
		return &Child{p, t.edition, t}, nil
	case errors.Is(err, errChildLost):
		// Another one waits soon.
		ts.distrust(t, err.Error(), false)
		return nil, errAskAgain
	case process.Scarce(err):
		// A new interpreter needs the same, and its fault says so.
		return nil, ErrNone
	case !errors.Is(err, errStale) && !errors.Is(err, errStopped):
		ts.distrust(t, err.Error(), false)
	}
	t.stop()
	return nil, errAskAgain
}

// of is the edition's template, which may still import it, or nil for none.
func (ts *Set) of(task launch.Task, o session.Options, edition string) *template {
	key := lineageKey(task, o)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return nil
	}
	l := ts.known[key]
	if l == nil {
		l = &lineage{}
		ts.known[key] = l
	}
	if l.refused(edition, time.Now()) {
		return nil
	}
	if l.now == nil || l.now.stopping() {
		if l.refusal != "" {
			l.refusal, l.strikes = "", 0
		}
		ts.makeRoom(l)
		l.edition = edition
		l.now = newTemplate(ts, l, task, o)
		ts.all.Go(l.now.live)
	}
	l.asking++
	l.used = time.Now()
	return l.now
}

// asked takes down that a template has answered.
func (ts *Set) asked(t *template) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := t.lineage
	l.asking--
	l.used = time.Now()
}

// makeRoom ends the template that nobody asks and that was used least recently, where
// there would be one too many with that of l, and forgets what has ended.
func (ts *Set) makeRoom(l *lineage) {
	live, last := 0, (*lineage)(nil)
	for key, each := range ts.known {
		switch {
		case each == l || each.now == nil:
		case each.now.stopping():
			if each.refusal == "" && each.strikes == 0 {
				delete(ts.known, key)
			}
		default:
			live++
			if each.asking == 0 && (last == nil || each.used.Before(last.used)) {
				last = each
			}
		}
	}
	if live >= spareTemplates+ts.slots && last != nil {
		ts.log.Info("a template ends, since others were used more recently", zap.String("task", last.now.task.Name))
		last.now.stop()
	}
}

// Share takes down that so many more slots use the templates, or fewer.
func (ts *Set) Share(slots int) {
	ts.mu.Lock()
	ts.slots += slots
	ts.mu.Unlock()
}

// Child is a process that was forked from a template of the Edition with the Modules.
// After the handshake it is Ready or Unready.
type Child struct {
	Session *session.Session
	Edition string
	from    *template
}

// Ready takes down that it got ready.
func (c *Child) Ready() { c.from.all.trust(c.from) }

// Unready takes down that it did not get ready, as the evidence says.
func (c *Child) Unready(e *diagnosis.Evidence) {
	why := e.Message
	if why == "" && c.Session.Process.Status != nil {
		why = c.Session.Process.Status.String()
	}
	c.from.all.distrust(c.from, "a forked process did not get ready: "+why, e.TimedOut)
}

// refused reports whether nothing is to be forked.
func (l *lineage) refused(edition string, now time.Time) bool {
	return l.refusal != "" && l.edition == edition && (l.until.IsZero() || now.Before(l.until))
}

// trust notes that a child got ready.
func (ts *Set) trust(t *template) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.lineage.strikes = 0
}

// distrust notes that a child did not get ready; atOnce forks no other soon.
func (ts *Set) distrust(t *template, why string, atOnce bool) {
	ts.mu.Lock()
	present := t.lineage.now == t
	if present {
		t.lineage.strikes++
	}
	atOnce = atOnce || t.lineage.strikes >= strikeLimit
	ts.mu.Unlock()
	switch {
	case !present:
	case atOnce:
		ts.refuse(t, why, true)
	default:
		ts.log.Warn("a fresh process could not be forked", zap.String("task", t.task.Name), zap.String("why", why))
	}
}

// refuse lets no more be forked of a task and says so once: for a while where what is the
// matter may pass, else until the task's file changes.
func (ts *Set) refuse(t *template, why string, passes bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := t.lineage
	if l.now != t {
		return
	}
	said := l.refusal != ""
	l.refusal, l.until = why, time.Time{}
	message := "fresh items of a task get a new interpreter each, which is slow: it cannot be forked"
	if passes {
		l.until = time.Now().Add(refusalLimit)
		message = fmt.Sprintf("fresh items of a task get a new interpreter each for %s, which is slow: forking it failed", refusalLimit)
	}
	if !said {
		ts.log.Warn(message, zap.String("task", t.task.Name), zap.String("device", t.o.Device), zap.String("why", why),
			zap.String("advice", "or set fresh: spawn for the task, which ends this message"))
	}
	t.stop()
}

// lineageKey has everything that a module may see while it is imported.
func lineageKey(task launch.Task, o session.Options) string {
	key, _ := json.Marshal([]any{task, o.Device, o.Memory, o.Env, o.Runtime})
	return string(key)
}

// UnimportedError says that a task's import failed in its template, which has ended.
type UnimportedError struct {
	Session  *session.Session
	Evidence diagnosis.Evidence
	Trace    string
}

// Error is error's.
func (e *UnimportedError) Error() string { return "import failed: " + e.Evidence.Message }

// errStale says that the task's code has changed since the template imported it.
var errStale = errors.New("its code has changed")

// errChildLost says that a child ended with a request in its hands.
var errChildLost = errors.New("the forked process ended before it was announced")

// errStopped says that a template was told to end.
var errStopped = errors.New("the template stops")
