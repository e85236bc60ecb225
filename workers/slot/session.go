package slot

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// session is the conversation with one task process, and what is known of it. The owner goroutine of its slot uses it; the
// goroutines started here only fill its channels.
type session struct {
	*process.Process
	task   Task
	budget gpumux.Size
	conn   *wire.Conn
	// board reads shared, which is the process's too; nil where it has none.
	board   *wire.Board
	shared  []byte
	started time.Time
	// limit is how many items it may run, 0 without limit; sent and ran are how many it was given and has finished.
	limit, sent, ran int
	// given is how many items it was last to be given ahead, pace the time that one takes, of late.
	given int
	pace  time.Duration
	batch int
	runs  int64
	// trims says that it understands wire.Trim.
	trims  bool
	memory memory
	// modules are the files that it says it has loaded, edition is that of its code.
	modules []string
	edition string
	// template is what it was forked from, or nil.
	template *template
	// charge is what it was killed for, where that is an item's doing.
	charge *gpumux.Fault

	send  chan wire.Message
	heard chan heard
}

// heard is one message of the process, or the error that ended the wire.
type heard struct {
	message wire.Message
	err     error
}

// launch starts the process and its goroutines; the handshake is still to come.
func launch(ctx context.Context, task Task, o Options, limit int) (*session, error) {
	argv := task.Program
	if task.Python != "" {
		python, err := interpreter(ctx, task.Interpreter, o)
		if err != nil {
			return nil, err
		}
		argv = []string{python, o.Runtime}
	}
	return start(task, o, limit, argv, nil)
}

// start is launch with a program and, for a template, its channel.
func start(task Task, o Options, limit int, argv []string, channel *os.File) (*session, error) {
	p, files, err := newSession(task, o, limit)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	extra := slices.Clone(files)
	if channel != nil {
		extra = append(append(extra, make([]*os.File, channelDescriptor-3-len(files))...), channel)
	}
	exposure := process.TaskExposure
	if channel != nil {
		exposure = process.TemplateExposure
	}
	if err = p.spawn(o, exposure, process.Command{Argv: argv, Files: extra}); err != nil {
		p.disconnect()
		return nil, err
	}
	p.live()
	return p, nil
}

// newSession makes the worker's side of a process that is still to be started with files, as its descriptors from 3 on; the
// caller closes them when it has.
func newSession(task Task, o Options, limit int) (p *session, files []*os.File, err error) {
	p = &session{
		task: task, budget: o.Memory, limit: limit, started: time.Now(), given: frameItems,
		send: make(chan wire.Message, unread), heard: make(chan heard, 16),
	}
	files, err = p.connect(o)
	return p, files, err
}

// live starts the goroutines of a process that has been started.
func (p *session) live() {
	p.Follow(p.memory.Close)
	go p.listen()
	go p.speak()
}

// connect makes the wire and the board. The process inherits the files in this order from descriptor 3 on.
func (p *session) connect(o Options) (inherited []*os.File, err error) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, fmt.Errorf("socket for a task process: %w", err)
	}
	p.conn = wire.NewWorker(ours)
	inherited = []*os.File{theirs}
	if p.limit == 1 {
		// One result needs no board.
		return inherited, nil
	}
	memory, file, err := boardMemory()
	if err != nil {
		o.Log.Warn("a task process has no board; its results come one by one, which is slower", logSlot.text(o.Name), logWhy.text(err.Error()))
	} else if memory != nil {
		p.shared, p.board = memory, wire.NewBoard(memory)
		inherited = append(inherited, file)
	}
	return inherited, nil
}

func (p *session) disconnect() {
	if p.conn != nil {
		p.conn.Close()
	}
	if p.shared != nil {
		freeBoard(p.shared)
		p.shared, p.board = nil, nil
	}
}

// spawn starts what is to be the process, in the task's folder and with the slot's environment.
func (p *session) spawn(o Options, exposure int, run process.Command) error {
	c, err := process.New(o.child(p.task, exposure))
	if err != nil {
		return err
	}
	run.Dir, run.Env = p.task.Dir, environ(p.task, o.Home, o.Env)
	if err := c.Start(run); err != nil {
		return err
	}
	p.Process = c
	p.watch(o)
	return nil
}

// child is what a process of the task gets in this slot. A budget of the host's memory is a cgroup's limit too, where there are any.
func (o Options) child(task Task, exposure int) process.Options {
	c := process.Options{Sweeper: o.Sweeper, Memory: o.Memory, User: task.User, Exposure: exposure, Log: o.Log.With(logSlot.text(o.Name))}
	if o.Memory > 0 && o.Device == "CPU" {
		c.Cgroups = o.Cgroups
	}
	return c
}

// listen ends with the wire; the slot always drains what it heard, so that it never blocks for long.
func (p *session) listen() {
	defer close(p.heard)
	for {
		message, err := p.conn.Read()
		select {
		case p.heard <- heard{message, err}:
		case <-p.Exited:
			// The last words of a dead process still count: they are results.
			p.heard <- heard{message, err}
		}
		if err != nil {
			return
		}
	}
}

// unread is how many messages wait for a process to read. One that keeps to the protocol never has as many: it waits for the answer
// to what it asked, and gets no items behind those that it has not read.
const unread = 8

// say hands the process a message and never waits for it; false says that too many wait already.
func (p *session) say(message wire.Message) bool {
	select {
	case p.send <- message:
		return true
	default:
		return false
	}
}

// speak keeps the owner goroutine from blocking on a process that does not read.
func (p *session) speak() {
	for message := range p.send {
		if p.conn.Write(message) != nil {
			// The reader sees the same end and says so.
			for range p.send {
			}
			return
		}
	}
}

// greet does the handshake and waits until the task is loaded.
// The traceback goes with an exception of the task's module.
func (p *session) greet(ctx context.Context, o Options, call Call, quit <-chan struct{}) (e *diagnosis.Evidence, traceback string) {
	spoke := false
	hello := wire.Hello{
		Version: wire.Version, Task: p.task.Name, Target: p.task.Python, Own: p.task.Own, Dir: p.task.Dir, Slot: o.Name, Device: o.Device,
		Memory: int64(o.Memory), Mode: call.mode(o.Mode), Room: int64(cmp.Or(call.Room, o.Room)),
	}
	if p.board != nil {
		hello.Board = wire.BoardSize
	}
	p.say(hello)
	limit := time.NewTimer(o.StartLimit)
	defer limit.Stop()
	for {
		select {
		case h := <-p.heard:
			switch m := h.message.(type) {
			case wire.ProcessHello:
				spoke = true
			case wire.Cap:
				if !p.capped(o, m) {
					return p.deaf(), ""
				}
			case wire.Ready:
				p.batch, p.trims, p.modules = m.Batch, m.Trim, m.Modules
				// What the import printed belongs to no item.
				p.Out.Rest()
				return nil, ""
			case wire.Fault:
				return raised(m.Raised), m.Raised.Traceback
			default:
				e := p.death(h.err)
				if !spoke && e.Exited {
					e.Silent = p.Program
				}
				return e, ""
			}
		case <-limit.C:
			return &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("the task process was not ready after %s", o.StartLimit)}, ""
		case <-ctx.Done():
			return &diagnosis.Evidence{Canceled: true}, ""
		case <-quit:
			return &diagnosis.Evidence{Canceled: true}, ""
		}
	}
}
