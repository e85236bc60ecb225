package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
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
	// channelDescriptor is the number under which a template inherits its end of the channel; those of its children are below.
	channelDescriptor = 9
)

// Templates are the templates of one worker, which its slots share: one for each task, device and budget, since a module may
// look at all of these while it is imported. Its methods may be called from any goroutine. Close ends it.
type Templates struct {
	log *zap.Logger

	mu     sync.Mutex // guards what follows
	known  map[string]*lineage
	closed bool
	all    sync.WaitGroup
}

// lineage are the templates of one task on one device, one after the other.
type lineage struct {
	now *template
	// strikes counts the children in a row that did not get ready; refusal is why none are forked, while the task's file is as stamp
	// says.
	strikes int
	refusal string
	stamp   string
}

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
func (ts *Templates) fork(ctx context.Context, quit <-chan struct{}, call Call, o Options, limit int) (*process, error) {
	for range templateStrikes {
		t := ts.of(call, o)
		if t == nil {
			return nil, errNoFork
		}
		select {
		case <-t.ready:
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
		p, err := t.fork(call.Task, o, limit)
		if err == nil {
			return p, nil
		}
		var stale *staleError
		switch {
		case errors.Is(err, errChildLost):
			// Another one waits soon.
			ts.distrust(t, err.Error(), false)
			continue
		case scarce(err):
			// A new interpreter needs the same, and its fault says so.
			return nil, errNoFork
		case !errors.As(err, &stale) && !errors.Is(err, errTemplateStopped):
			ts.distrust(t, err.Error(), false)
		}
		t.stop()
	}
	return nil, errNoFork
}

// of is the template of a task, which may still import it, or nil when there is to be none.
func (ts *Templates) of(call Call, o Options) *template {
	task := call.Task
	key, stamp := lineageKey(task, o), sourceStamp(task)
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
	if l.refusal != "" && l.stamp == stamp {
		return nil
	}
	if l.now == nil || l.now.stopping() {
		if l.refusal != "" {
			l.refusal, l.strikes = "", 0
		}
		l.stamp = stamp
		l.now = newTemplate(ts, l, call, o)
		ts.all.Go(l.now.live)
	}
	return l.now
}

// distrust takes down that a child did not get ready; for good says that no other is to be tried.
func (ts *Templates) distrust(t *template, why string, forGood bool) {
	ts.mu.Lock()
	l := t.lineage
	l.strikes++
	if forGood || l.strikes >= templateStrikes {
		ts.mu.Unlock()
		ts.refuse(t, why)
		return
	}
	ts.mu.Unlock()
	ts.log.Warn("a fresh process could not be forked", logTask.text(t.task.Name), logWhy.text(why))
}

// trust takes down that a child got ready.
func (ts *Templates) trust(t *template) {
	ts.mu.Lock()
	t.lineage.strikes = 0
	ts.mu.Unlock()
}

// refuse lets no more be forked of a task and says so once.
func (ts *Templates) refuse(t *template, why string) {
	ts.mu.Lock()
	said := t.lineage.refusal != ""
	t.lineage.refusal = why
	ts.mu.Unlock()
	if !said {
		ts.log.Warn("fresh items of a task get a new interpreter each, which is slow: it cannot be forked", logTask.text(t.task.Name),
			logDevice.text(t.o.Device), logWhy.text(why), logAdvice.text("or set fresh: spawn for the task, which ends this message"))
	}
	t.stop()
}

// forks says whether fresh processes of a task may be forked at all.
func (t Task) forks() bool { return canFork && t.Python != "" && t.Fresh != Spawn }

// lineageKey has everything that a module may see while it is imported.
func lineageKey(task Task, o Options) string {
	key, _ := json.Marshal([]any{task, o.Device, o.Memory, o.Env, o.Runtime})
	return string(key)
}

// sourceStamp changes when the file of a task does.
func sourceStamp(task Task) string {
	place, _, _ := strings.Cut(task.Python, ":")
	if !strings.HasSuffix(place, ".py") {
		place = strings.ReplaceAll(place, ".", "/") + ".py"
	}
	if !filepath.IsAbs(place) {
		place = filepath.Join(task.Dir, place)
	}
	info, err := os.Stat(place)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size())
}

// unimported is the error of a task whose import failed in its template.
type unimported struct {
	process  *process
	evidence Evidence
	trace    string
}

func (u *unimported) Error() string { return "import failed: " + u.evidence.Message }

// staleError says that the task's code has changed since the template imported it.
type staleError struct{ file string }

func (e *staleError) Error() string { return e.file + " has changed" }

// errChildLost says that a child ended with a request in its hands.
var errChildLost = errors.New("the forked process ended before it was announced")

// errTemplateStopped says that a template was told to end.
var errTemplateStopped = errors.New("the template stops")

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
