package template

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
)

const possible = true

// template is a process that has imported a task and forks those of fresh items. Nothing
// runs in it. What it forks belongs to the worker and stays when it ends.
type template struct {
	all     *Set
	lineage *lineage
	task    launch.Task
	o       session.Options
	// ctx ends when the template is to end.
	ctx  context.Context
	stop context.CancelFunc

	// Set before ready is closed: process is nil if nothing forks, failure is the import's.
	ready   chan struct{}
	process *session.Session
	failure *UnimportedError
	edition string // of what it has imported
	// lingering is closed when the killed process does not end.
	lingering chan struct{}

	mu      sync.Mutex // one request at a time
	channel *net.UnixConn
	used    chan struct{}
}

func newTemplate(all *Set, l *lineage, task launch.Task, o session.Options) *template {
	o.Name = ""
	ctx, stop := context.WithCancel(context.Background())
	return &template{
		all: all, lineage: l, task: task, o: o,
		ctx: ctx, stop: stop, ready: make(chan struct{}), lingering: make(chan struct{}), used: make(chan struct{}, 1),
	}
}

func (t *template) stopping() bool { return t.ctx.Err() != nil }

// live starts the template, keeps it while it is used and ends it.
func (t *template) live() {
	defer t.stop()
	p := t.start()
	t.process = p
	close(t.ready)
	if p == nil {
		return
	}
	idle := time.NewTimer(idleLimit)
	defer idle.Stop()
	for {
		select {
		case <-t.used:
			idle.Reset(idleLimit)
			continue
		case <-idle.C:
		case <-p.Process.Exited:
			t.all.log.Warn("a template ended; the next fresh item starts another", zap.String("task", t.task.Name), zap.Int("pid", p.Process.PID),
				zap.String("why", p.Process.Status.String()))
		case <-t.ctx.Done():
		}
		break
	}
	t.stop()
	t.channel.Close()
	p.Kill()
}

// start gives a process that waits for requests, or nothing.
func (t *template) start() *session.Session {
	began, kills := time.Now(), process.MemoryKills()
	channel, theirs, err := openChannel()
	if err != nil {
		t.all.refuse(t, err.Error(), true)
		return nil
	}
	defer theirs.Close()
	p, err := session.Start(t.ctx, t.task, t.o, theirs)
	if err != nil {
		// The new interpreter fails in the same way, and says so.
		channel.Close()
		return nil
	}
	p.Process.Patience, p.Process.Lingers = t.o.Patience, sync.OnceFunc(func() {
		t.all.log.Error("a killed template does not end; fresh items of its task get a new interpreter each until it does",
			zap.String("task", t.task.Name), zap.Int("pid", p.Process.PID), zap.String("advice", process.LingerHint))
		close(t.lingering)
	})
	evidence, trace := t.load(p)
	why, passes := "", false
	if evidence == nil {
		why, passes = t.unfit(p, channel)
	}
	if evidence == nil && why == "" {
		t.channel = channel
		t.all.log.Info("template ready: fresh items are forked from it", zap.String("task", t.task.Name),
			zap.String("device", t.o.Device), zap.Int("pid", p.Process.PID),
			zap.String("memory", gpumux.Size(resident(p.Process.PID)).String()),
			zap.String("took", time.Since(began).Round(time.Millisecond).String()))
		return p
	}
	if evidence != nil && !evidence.Canceled {
		evidence.Loading = true
		p.Explain(evidence, kills)
		t.failure = &UnimportedError{p, *evidence, trace}
	}
	channel.Close()
	p.Kill()
	if why != "" {
		t.all.refuse(t, why, passes)
	}
	return nil
}

// load awaits the import. Evidence says why it did not go well.
func (t *template) load(p *session.Session) (evidence *diagnosis.Evidence, trace string) {
	before, err := t.task.Edition(t.ctx, t.o.StartLimit)
	if err != nil {
		return &diagnosis.Evidence{Canceled: true}, ""
	}
	_, evidence, trace = p.Greet(t.ctx)
	t.edition = before // if the files change meanwhile, it is outdated already
	return evidence, trace
}

// unfit is why a loaded template must not fork, or "", and whether that may pass.
func (t *template) unfit(p *session.Session, channel *net.UnixConn) (why string, passes bool) {
	var word [4096]byte
	channel.SetReadDeadline(time.Now().Add(forkLimit))
	n, err := channel.Read(word[:])
	if err != nil {
		return fmt.Sprintf("the template says nothing: %v", err), true
	}
	before, ok := strings.CutPrefix(string(word[:n]), "ready ")
	if !ok {
		return strings.TrimPrefix(string(word[:n]), "refused "), false
	}
	if why := footprint(procfs, p.Process.PID, strings.Split(before, ","), deviceFiles); why != "" {
		return why, false
	}
	if _, err := channel.Write([]byte("go")); err != nil {
		return fmt.Sprintf("the template does not listen: %v", err), true
	}
	return "", false
}

// fork forks a process and makes it the worker's own before it does anything.
func (t *template) fork(task launch.Task, o session.Options) (*session.Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopping() {
		return nil, errStopped
	}
	select {
	case t.used <- struct{}{}:
	default:
	}
	return session.Adopt(task, o, t.request)
}

// request hands files to a child of the template: the output, and what becomes its
// descriptors from 3 on, which are closed here. Gone tells that it lives no more.
func (t *template) request(mark uint64, output *os.File, files []*os.File, gone <-chan struct{}) (pid int, err error) {
	fds := []int{int(output.Fd())}
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	limit := min(forkLimit, t.o.StartLimit)
	t.channel.SetDeadline(time.Now().Add(limit))
	_, _, err = t.channel.WriteMsgUnix(strconv.AppendUint(nil, mark, 10), unix.UnixRights(fds...), nil)
	runtime.KeepAlive(output)
	for _, file := range files {
		file.Close()
	}
	var answer [4096]byte
	n, lost := 0, false
	if err == nil {
		read := make(chan struct{})
		go func() { n, err = t.channel.Read(answer[:]); close(read) }()
		select {
		case <-read:
		case <-gone:
			// Only the child has the other end: closed, it answered before or never will.
			lost = true
			t.channel.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			<-read
		}
	}
	switch {
	case lost && errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errChildLost
	case err != nil && t.stopping():
		return 0, errStopped
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

// openChannel makes a template's socket: one message is one request, with files.
func openChannel() (*net.UnixConn, *os.File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a channel to a template: %w", os.NewSyscallError("socketpair", err))
	}
	ours := os.NewFile(uintptr(ends[0]), "template")
	theirs := os.NewFile(uintptr(ends[1]), "template")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("use the channel to a template: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
