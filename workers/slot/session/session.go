package session

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// Options are what a slot gives a process. What a framework may allocate of its Memory is Room; both are 0 without a limit.
type Options struct {
	// Slot is the slot's name, Device the device's UUID, or "CPU".
	Slot, Device string
	Memory, Room gpumux.Size
	Mode         gpumux.Mode
	// Single says that it runs one item at a time and needs no board.
	Single bool
	// Lease names the lease that it belongs to on a host; Rebuilt is wire.Hello's. Default: no lease.
	Lease, Host string
	Rebuilt     bool
	// Env is the device's part of the environment, Home what ~ stands for, Runtime the Python runtime's main.py and RRuntime the R
	// runtime's main.R.
	Env                     map[string]string
	Home, Runtime, RRuntime string
	// Watch, Cgroups, Capped and Ending may be nil.
	Watch   Watch
	Cgroups *process.Cgroups
	Capped  func(Cap)
	Ending  func(ours func(pid int) bool)
	// StartLimit bounds the start, imports included.
	StartLimit time.Duration
	// Patience is how long a template may take to end that was killed, until somebody is told.
	Patience time.Duration
	Log      *zap.Logger
}

// Session is the conversation with one task process. One goroutine uses it; those started here only fill its channels.
type Session struct {
	*process.Process
	Task   launch.Task
	Memory Memory
	// Heard is what the process says, until its wire ends.
	Heard chan Heard
	// Board is where it puts results; nil where it has none.
	Board *wire.Board

	o Options
	// shared is the board's memory, which is the process's too.
	shared []byte
	conn   *wire.Conn
	send   chan wire.Message
	// hungUp is closed when the wire has ended.
	hungUp chan struct{}
}

// Heard is one message of the process, or the error that ended the wire.
type Heard struct {
	Message wire.Message
	Err     error
}

// channelDescriptor is the number under which a template inherits its end of the channel; those of its children are below.
const channelDescriptor = 9

// Start starts a task's process; the handshake is still to come. With a channel it is a template, which is asked on it.
func Start(ctx context.Context, task launch.Task, o Options, channel *os.File) (*Session, error) {
	argv, err := task.Argv(ctx, o.StartLimit, o.Runtime, o.RRuntime)
	if err != nil {
		return nil, err
	}
	p, files, err := connected(task, o)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	extra, exposure := files, process.TaskExposure
	if channel != nil {
		argv = append(argv, "template", strconv.Itoa(channelDescriptor), strconv.Itoa(os.Getpid()))
		extra = append(append(slices.Clone(files), make([]*os.File, channelDescriptor-3-len(files))...), channel)
		exposure = process.TemplateExposure
	}
	if err = p.start(process.Command{Argv: argv, Files: extra}, exposure); err != nil {
		p.disconnect()
		return nil, err
	}
	p.Follow(p.Memory.Close)
	go p.listen()
	go p.speak()
	return p, nil
}

// StartCommand starts a command, which has no wire and says what it has to say on its standard output.
func StartCommand(task launch.Task, o Options, argv []string, stdin, stdout *os.File) (*Session, error) {
	p := &Session{Task: task, o: o}
	if err := p.start(process.Command{Argv: argv, Stdin: stdin, Stdout: stdout}, process.TaskExposure); err != nil {
		return nil, err
	}
	p.Follow(p.Memory.Close)
	return p, nil
}

// connected is the worker's side of a process that is still to be started with files, as its descriptors from 3 on: the wire and the
// board. The caller closes them when it has.
func connected(task launch.Task, o Options) (p *Session, files []*os.File, err error) {
	p = &Session{
		Task: task, o: o, send: make(chan wire.Message, unread), Heard: make(chan Heard, 16), hungUp: make(chan struct{}),
	}
	if task.R != "" {
		// It has no board either: R maps no memory.
		ours, theirs, err := wire.Pipes()
		if err != nil {
			return nil, nil, err
		}
		p.conn = wire.NewWorker(ours)
		return p, theirs, nil
	}
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, nil, fmt.Errorf("socket for a task process: %w", err)
	}
	p.conn, files = wire.NewWorker(ours), []*os.File{theirs}
	if o.Single {
		// Single results need no board.
		return p, files, nil
	}
	memory, file, err := boardMemory()
	if err != nil {
		o.Log.Warn("a task process has no board; its results come one by one, which is slower", zap.String(logkey.Slot, o.Slot),
			zap.String(logkey.Why, err.Error()))
	} else if memory != nil {
		p.shared, p.Board = memory, wire.NewBoard(memory)
		files = append(files, file)
	}
	return p, files, nil
}

func (p *Session) disconnect() {
	p.conn.Close()
	if p.shared != nil {
		freeBoard(p.shared)
		p.shared, p.Board = nil, nil
	}
}

// start starts what is to be the process, in the task's folder and with the slot's environment.
func (p *Session) start(run process.Command, exposure int) error {
	c, err := process.New(p.options(exposure))
	if err != nil {
		return err
	}
	run.Dir, run.Env = p.Task.Dir, p.Task.Environ(p.o.Home, p.o.Env)
	if err := c.Start(run); err != nil {
		return err
	}
	p.Process = c
	p.watch()
	return nil
}

// options are what a process gets of the system. A budget of the host's memory is a cgroup's limit too, where there are any.
func (p *Session) options(exposure int) process.Options {
	c := process.Options{
		Memory: p.o.Memory, User: p.Task.User, Ending: p.o.Ending, Exposure: exposure, Log: p.o.Log.With(zap.String(logkey.Slot, p.o.Slot)),
	}
	if p.o.Memory > 0 && p.o.Device == "CPU" {
		c.Cgroups = p.o.Cgroups
	}
	return c
}

// listen ends with the wire; the slot always drains what it heard, so that it never blocks for long.
func (p *Session) listen() {
	defer close(p.Heard)
	for {
		message, err := p.conn.Read()
		if err != nil {
			close(p.hungUp)
		}
		select {
		case p.Heard <- Heard{message, err}:
		case <-p.Exited:
			// The last words of a dead process still count: they are results.
			p.Heard <- Heard{message, err}
		}
		if err != nil {
			return
		}
	}
}

// unread is how many messages wait for a process to read. One that keeps to the protocol never has as many: it waits for the answer
// to what it asked, and gets no items behind those that it has not read.
const unread = 8

// Say hands the process a message and never waits for it; false says that too many wait already.
func (p *Session) Say(message wire.Message) bool {
	select {
	case p.send <- message:
		return true
	default:
		return false
	}
}

// Unread is how many messages wait for it to read.
func (p *Session) Unread() int { return len(p.send) }

// speak keeps the owner goroutine from blocking on a process that does not read.
func (p *Session) speak() {
	for message := range p.send {
		if p.conn.Write(message) != nil {
			// The reader sees the same end and says so.
			for range p.send {
			}
			return
		}
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}
