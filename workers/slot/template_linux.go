package slot

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

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/edition"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
)

const canFork = true

// template is a process that has imported a task and forks the processes of fresh items. Nothing runs in it. What it forks
// belongs to the worker, like any task process, and stays when the template ends.
type template struct {
	all     *Templates
	lineage *lineage
	task    Task
	o       Options
	call    Call
	quit    chan struct{}
	once    sync.Once

	// Set before ready is closed: process is nil when nothing can be forked, failure why the import failed.
	ready   chan struct{}
	process *session
	failure *unimported
	edition string // of what it has imported
	// lingering is closed when the process was killed and does not end; nobody waits for ready then.
	lingering chan struct{}

	mu      sync.Mutex // one request at a time
	channel *net.UnixConn
	used    chan struct{}
}

func newTemplate(all *Templates, l *lineage, call Call, o Options) *template {
	o.Name = ""
	return &template{
		all: all, lineage: l, task: call.Task, o: o, call: Call{Mode: gpumux.Fresh, Room: call.Room},
		quit: make(chan struct{}), ready: make(chan struct{}), lingering: make(chan struct{}), used: make(chan struct{}, 1),
	}
}

// stop lets the template end; live returns when it has.
func (t *template) stop() { t.once.Do(func() { close(t.quit) }) }

func (t *template) stopping() bool {
	select {
	case <-t.quit:
		return true
	default:
		return false
	}
}

// live starts the template, keeps it while it is used and ends it.
func (t *template) live() {
	defer t.stop()
	p := t.start()
	t.process = p
	close(t.ready)
	if p == nil {
		return
	}
	idle := time.NewTimer(templateIdle)
	defer idle.Stop()
	for {
		select {
		case <-t.used:
			idle.Reset(templateIdle)
			continue
		case <-idle.C:
		case <-p.Exited:
			t.all.log.Warn("a template ended; the next fresh item starts another", logTask.text(t.task.Name), logPID.int(p.PID),
				logWhy.text(p.Status.String()))
		case <-t.quit:
		}
		break
	}
	t.stop()
	t.channel.Close()
	p.kill()
}

// start gives a process that waits for requests. Where there is none, nothing is left of it.
func (t *template) start() *session {
	began, kills := time.Now(), process.MemoryKills()
	channel, theirs, err := openChannel()
	if err != nil {
		t.all.refuse(t, err.Error(), true)
		return nil
	}
	defer theirs.Close()
	var p *session
	python, err := interpreter(context.Background(), t.task.Interpreter, t.o)
	if err == nil {
		argv := []string{python, t.o.Runtime, "template", strconv.Itoa(channelDescriptor), strconv.Itoa(os.Getpid())}
		p, err = start(t.task, t.o, 1, argv, theirs)
	}
	if err != nil {
		// The new interpreter fails in the same way, and says so.
		channel.Close()
		return nil
	}
	p.Patience, p.Lingers = t.o.patience, sync.OnceFunc(func() {
		t.all.log.Error("a killed template does not end; fresh items of its task get a new interpreter each until it does",
			logTask.text(t.task.Name), logPID.int(p.PID), logAdvice.text(lingerHint))
		close(t.lingering)
	})
	before, err := current(context.Background(), t.quit, t.o, t.task, nil)
	evidence, trace := &diagnosis.Evidence{Canceled: true}, ""
	if err == nil {
		evidence, trace = p.greet(context.Background(), t.o, t.call, t.quit)
	}
	if evidence == nil {
		if t.edition, err = current(context.Background(), t.quit, t.o, t.task, p.modules); err != nil {
			evidence = &diagnosis.Evidence{Canceled: true}
		} else if edition.Shown(t.edition) != before {
			t.edition = before // nobody knows which text was read; it is outdated already
		}
	}
	why, passes := "", false
	if evidence == nil {
		why, passes = t.unfit(p, channel)
	}
	if evidence == nil && why == "" {
		t.channel = channel
		t.all.log.Info("template ready: fresh items are forked from it", logTask.text(t.task.Name), logDevice.text(t.o.Device), logPID.int(p.PID),
			logMemory.text(gpumux.Size(resident(p.PID)).String()), logTook.text(time.Since(began).Round(time.Millisecond).String()))
		return p
	}
	if evidence != nil && !evidence.Canceled {
		evidence.Loading = true
		p.gather(evidence, kills)
		t.failure = &unimported{p, *evidence, trace}
	}
	channel.Close()
	p.kill()
	if why != "" {
		t.all.refuse(t, why, passes)
	}
	return nil
}

// unfit says why a template that has imported its task must not be forked, or "", and whether that may pass.
func (t *template) unfit(p *session, channel *net.UnixConn) (why string, passes bool) {
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
	if why := footprint(procfs, p.PID, strings.Split(before, ","), deviceFiles); why != "" {
		return why, false
	}
	if _, err := channel.Write([]byte("go")); err != nil {
		return fmt.Sprintf("the template does not listen: %v", err), true
	}
	return "", false
}

// fork lets the template fork a process, and makes it one of the worker's own before it does anything.
func (t *template) fork(task Task, o Options, limit int) (_ *session, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopping() {
		return nil, errTemplateStopped
	}
	select {
	case t.used <- struct{}{}:
	default:
	}
	p, files, err := newSession(task, o, limit)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	c, err := process.New(o.child(task, process.TaskExposure))
	if err != nil {
		p.disconnect()
		return nil, err
	}
	p.Process, p.template = c, t
	go p.listen()
	pid, err := t.request(c.Token(), c.Out.File, files, p.heard)
	if err == nil {
		err = c.Adopt(pid)
	}
	if err != nil {
		p.disconnect()
		c.Disown()
		return nil, err
	}
	p.watch(o)
	p.Follow(p.memory.Close)
	go p.speak()
	return p, nil
}

// request hands files to a child of the template: the output, and what becomes its descriptors from 3 on, which are closed here.
// What is heard on its wire tells whether it lives.
func (t *template) request(token string, output *os.File, files []*os.File, wire chan heard) (pid int, err error) {
	fds := []int{int(output.Fd())}
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	limit := min(forkLimit, t.o.StartLimit)
	t.channel.SetDeadline(time.Now().Add(limit))
	_, _, err = t.channel.WriteMsgUnix([]byte(token), unix.UnixRights(fds...), nil)
	runtime.KeepAlive(output)
	closeAll(files)
	var answer [4096]byte
	n, lost := 0, false
	if err == nil {
		read := make(chan struct{})
		go func() { n, err = t.channel.Read(answer[:]); close(read) }()
		for waiting := true; waiting; {
			select {
			case <-read:
				waiting = false
			case h := <-wire:
				// Its hello may come first, and goes back. Only the child has the other end: if that is closed, it answered before or
				// never will.
				if h.err == nil {
					defer func() { wire <- h }()
				}
				if lost = h.err != nil; lost {
					t.channel.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
					<-read
					waiting = false
				}
			}
		}
	}
	switch {
	case lost && errors.Is(err, os.ErrDeadlineExceeded):
		return 0, errChildLost
	case err != nil && t.stopping():
		return 0, errTemplateStopped
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

// openChannel makes the socket on which a template is asked: one message is one request, with files.
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
