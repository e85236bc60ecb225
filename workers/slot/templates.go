package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/workers/slot/diagnosis"
)

// Fresh is how a process for one item comes to be.
type Fresh string

const (
	// Fork takes it from a template, a process that has imported the task and forks; where that is not safe it is Spawn.
	Fork Fresh = "fork"
	// Spawn starts a new interpreter, which imports the task again.
	Spawn Fresh = "spawn"
)

const (
	// templateIdle is how long a template stays that nobody asks for a child.
	templateIdle = 3 * time.Minute
	// forkLimit bounds a fork, and the start of what was forked. Both take milliseconds; what they do not, a new interpreter does.
	forkLimit = 10 * time.Second
	// templateStrikes is after how many children in a row that did not get ready no more are forked.
	templateStrikes = 3
	// refusalLimit is how long nothing is forked after failures that may pass.
	refusalLimit = 5 * time.Minute
	// spareTemplates is how many templates there are at most beside one for each slot.
	spareTemplates = 4
	// channelDescriptor is the number under which a template inherits its end of the channel; those of its children are below.
	channelDescriptor = 9
)

// Templates are the templates of one worker, which its slots share: one for each task, device and budget, since a module may
// look at all of these while it is imported. Its methods may be called from any goroutine. Close ends it.
type Templates struct {
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
	// strikes counts the children in a row that did not get ready; refusal is why none are forked, while the task's code has the
	// edition, and until then, if that is set.
	strikes int
	refusal string
	edition string
	until   time.Time
}

// errAskAgain says that another child may do.
var errAskAgain = errors.New("ask again")

// errNoFork says that a new interpreter is to be started instead; why was logged.
var errNoFork = errors.New("no template")

// NewTemplates makes a place for templates; log may be nil.
func NewTemplates(log *zap.Logger) *Templates {
	if log == nil {
		log = zap.NewNop()
	}
	return &Templates{log: log, known: map[string]*lineage{}}
}

// Close ends all templates and returns when nothing is left of them. What was forked stays.
func (ts *Templates) Close() {
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

// fork gives a process that has imported the task already. The error is errNoFork when there is to be a new interpreter, a
// *unimported when the import failed, else why the call ended.
func (ts *Templates) fork(ctx context.Context, quit <-chan struct{}, call Call, o Options, limit int) (*session, error) {
	for range templateStrikes {
		now, err := current(ctx, quit, o, call.Task, nil)
		if err != nil {
			return nil, err
		}
		t := ts.of(call, o, now)
		if t == nil {
			return nil, errNoFork
		}
		p, err := ts.ask(ctx, quit, t, call.Task, o, limit)
		ts.asked(t)
		if !errors.Is(err, errAskAgain) {
			return p, err
		}
	}
	return nil, errNoFork
}

// ask waits for a template and asks it for a process. The error is like that of fork, or errAskAgain.
func (ts *Templates) ask(
	ctx context.Context, quit <-chan struct{}, t *template, task Task, o Options, limit int,
) (*session, error) {
	select {
	case <-t.ready:
	case <-t.lingering:
		return nil, errNoFork
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-quit:
		return nil, ErrStopped
	}
	switch {
	case t.failure != nil:
		return nil, t.failure
	case t.process == nil:
		return nil, errNoFork
	}
	now, err := current(ctx, quit, o, task, t.process.modules)
	if err != nil {
		return nil, err
	}
	var p *session
	if now == t.edition {
		p, err = t.fork(task, o, limit)
	} else {
		err = errStale
	}
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, errChildLost):
		// Another one waits soon.
		ts.distrust(t, err.Error(), false)
		return nil, errAskAgain
	case scarce(err):
		// A new interpreter needs the same, and its fault says so.
		return nil, errNoFork
	case !errors.Is(err, errStale) && !errors.Is(err, errTemplateStopped):
		ts.distrust(t, err.Error(), false)
	}
	t.stop()
	return nil, errAskAgain
}

// of is the template of a task whose code has the edition, which may still import it, or nil when there is to be none.
func (ts *Templates) of(call Call, o Options, edition string) *template {
	task := call.Task
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
		l.now = newTemplate(ts, l, call, o)
		ts.all.Go(l.now.live)
	}
	l.asking++
	l.used = time.Now()
	return l.now
}

// asked takes down that a template has answered.
func (ts *Templates) asked(t *template) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := t.lineage
	l.asking--
	l.used = time.Now()
}

// makeRoom ends the template that nobody asks and that was used least recently, where there would be one too many with that of l,
// and forgets what has ended.
func (ts *Templates) makeRoom(l *lineage) {
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
		ts.log.Info("a template ends, since others were used more recently", logTask.text(last.now.task.Name))
		last.now.stop()
	}
}

// share takes down that so many more slots use the templates, or fewer.
func (ts *Templates) share(slots int) {
	ts.mu.Lock()
	ts.slots += slots
	ts.mu.Unlock()
}

// refused reports whether nothing is to be forked.
func (l *lineage) refused(edition string, now time.Time) bool {
	return l.refusal != "" && l.edition == edition && (l.until.IsZero() || now.Before(l.until))
}

// distrust takes down that a child did not get ready; atOnce says that no other is to be tried soon.
func (ts *Templates) distrust(t *template, why string, atOnce bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	l := t.lineage
	if l.now != t {
		return
	}
	l.strikes++
	if atOnce || l.strikes >= templateStrikes {
		ts.refuseLocked(t, why, true)
		return
	}
	ts.log.Warn("a fresh process could not be forked", logTask.text(t.task.Name), logWhy.text(why))
}

// trust takes down that a child got ready.
func (ts *Templates) trust(t *template) {
	ts.mu.Lock()
	t.lineage.strikes = 0
	ts.mu.Unlock()
}

// refuse lets no more be forked of a task and says so once: for a while where what is the matter may pass, else until the task's
// file changes.
func (ts *Templates) refuse(t *template, why string, passes bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.refuseLocked(t, why, passes)
}

func (ts *Templates) refuseLocked(t *template, why string, passes bool) {
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
		ts.log.Warn(message, logTask.text(t.task.Name), logDevice.text(t.o.Device), logWhy.text(why),
			logAdvice.text("or set fresh: spawn for the task, which ends this message"))
	}
	t.stop()
}

// forks reports whether fresh processes of a task may be forked at all.
func (t Task) forks() bool { return canFork && t.Python != "" && t.Fresh != Spawn }

// lineageKey has everything that a module may see while it is imported.
func lineageKey(task Task, o Options) string {
	key, _ := json.Marshal([]any{task, o.Device, o.Memory, o.Env, o.Runtime})
	return string(key)
}

// unimported is the error of a task whose import failed in its template.
type unimported struct {
	process  *session
	evidence diagnosis.Evidence
	trace    string
}

func (u *unimported) Error() string { return "import failed: " + u.evidence.Message }

// errStale says that the task's code has changed since the template imported it.
var errStale = errors.New("its code has changed")

// errChildLost says that a child ended with a request in its hands.
var errChildLost = errors.New("the forked process ended before it was announced")

// errTemplateStopped says that a template was told to end.
var errTemplateStopped = errors.New("the template stops")

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
