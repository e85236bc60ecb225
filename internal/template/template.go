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
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/wire"
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
	key, _ := json.Marshal([]any{task, o.Device, o.Memory, o.Env, o.Cores, o.Runtime})
	return string(key)
}

// template is a process that has imported a task and forks one process per fresh item. No
// item runs in it. The worker owns the forked processes, and they outlive it.
type template struct {
	all     *Set
	task    launch.Task
	o       session.Options
	edition string // of the code, read before the import
	ctx     context.Context
	stop    context.CancelFunc
	// refused is until when no other template is started for this code; under the set's
	// lock.
	refused time.Time

	// process is set before ready closes. It is nil if the template must not fork.
	ready   chan struct{}
	process *session.Session

	mu      sync.Mutex // one request at a time
	channel *net.UnixConn
	// idle ends a template that nobody uses; set before ready closes.
	idle *time.Timer
}

func newTemplate(all *Set, task launch.Task, o session.Options, edition string) *template {
	o.Name = ""
	ctx, stop := context.WithCancel(context.Background())
	return &template{
		all: all, task: task, o: o, edition: edition,
		ctx: ctx, stop: stop, ready: make(chan struct{}),
	}
}

func (t *template) stopping() bool { return t.ctx.Err() != nil }

// live starts the template, keeps it while it is used and ends it.
func (t *template) live() {
	p, channel, fit := t.start()
	defer func() {
		t.stop()
		if p != nil {
			channel.Close()
			p.Kill()
		}
	}()
	if !fit {
		close(t.ready)
		return
	}
	t.process, t.channel, t.idle = p, channel, time.AfterFunc(idleLimit, t.stop)
	close(t.ready)
	select {
	case <-p.Process.Exited:
		t.all.log.Warn("a template ended; the next fresh item starts another", zap.String("task", t.task.Name), zap.Int("pid", p.Process.PID),
			zap.String("why", p.Process.Status.String()))
	case <-t.ctx.Done():
	}
}

// start starts the template's process. fit reports whether it can fork.
func (t *template) start() (p *session.Session, channel *net.UnixConn, fit bool) {
	began := time.Now()
	channel, theirs, err := wire.Pair(syscall.SOCK_SEQPACKET) // one message is one request, with files
	if err != nil {
		t.refuse(err.Error(), failedLimit)
		return nil, nil, false
	}
	defer theirs.Close()
	if p, err = session.Start(t.ctx, t.task, t.o, theirs); err != nil {
		// A new interpreter fails in the same way, and says so.
		channel.Close()
		return nil, nil, false
	}
	_, evidence, _ := p.Greet(t.ctx)
	why, limit := "", failedLimit
	switch {
	case evidence == nil:
		why, limit = unfit(channel)
	case !evidence.Canceled:
		why = "its import failed" // a new interpreter says how
	}
	if why != "" {
		t.refuse(why, limit)
	}
	if now, err := t.task.Edition(t.ctx, t.o.StartLimit); evidence != nil || why != "" || err != nil || now != t.edition {
		return p, channel, false // a new interpreter says what is wrong, or has the new code
	}
	t.all.log.Info("template ready: fresh items are forked from it", zap.String("task", t.task.Name),
		zap.String("device", t.o.Device), zap.Int("pid", p.Process.PID),
		zap.String("took", time.Since(began).Round(time.Millisecond).String()))
	return p, channel, true
}

// unfit is why a loaded template must not fork, or "", and how long that holds.
func unfit(channel *net.UnixConn) (why string, limit time.Duration) {
	var word [4096]byte
	channel.SetReadDeadline(time.Now().Add(forkLimit))
	n, err := channel.Read(word[:])
	if err != nil {
		return fmt.Sprintf("the template says nothing: %v", err), failedLimit
	}
	if why, refused := strings.CutPrefix(string(word[:n]), "refused "); refused {
		return why, unfitLimit
	}
	if _, err := channel.Write([]byte("go")); err != nil {
		return fmt.Sprintf("the template does not listen: %v", err), failedLimit
	}
	return "", 0
}

func (t *template) fork(task launch.Task, o session.Options) (*session.Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopping() {
		return nil, errors.New("the template stops")
	}
	t.idle.Reset(idleLimit)
	return session.Adopt(task, o, t.request)
}

// request asks the template for a child that prints to output and speaks on wire. It
// closes wire here.
func (t *template) request(output, wire *os.File) (pid int, err error) {
	limit := min(forkLimit, t.o.StartLimit)
	t.channel.SetDeadline(time.Now().Add(limit))
	_, _, err = t.channel.WriteMsgUnix([]byte("fork"), unix.UnixRights(int(output.Fd()), int(wire.Fd())), nil)
	runtime.KeepAlive(output)
	wire.Close()
	var answer [4096]byte
	n := 0
	if err == nil {
		n, err = t.channel.Read(answer[:])
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), err == nil && n == 0:
		return 0, errors.New("the template ended while it forked")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("the template forked nothing within %s", limit)
	case err != nil:
		return 0, fmt.Errorf("ask the template for a process: %w", err)
	}
	word, rest, _ := strings.Cut(string(answer[:n]), " ")
	if word == "pid" {
		return strconv.Atoi(rest)
	}
	return 0, fmt.Errorf("the template could not fork: %s", rest)
}
