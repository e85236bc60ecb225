package session

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/wire"
)

// Options describe the place of a slot and the resources of its processes.
type Options struct {
	// Name is pool/number, unique in the worker.
	Name, Host string
	// Device is the device's UUID, or "CPU".
	Device string
	// Memory is the budget. Default: none. Room is the part of it on each device that a
	// framework may allocate. Default: no limit.
	Memory, Room gpumux.Size
	// Mode is for calls and tasks without one. Default persistent.
	Mode gpumux.Mode
	// Env is the device's part of the environment, such as CUDA_VISIBLE_DEVICES.
	Env map[string]string
	// Cores are the processors that its processes run on. Default: the worker's.
	Cores []int
	// Home is HOME in the environment. Default: the worker's.
	Home string
	// Runtime is the Python runtime's main.py, RRuntime R's main.R.
	Runtime, RRuntime string
	// Watch follows the memory of processes and ends those over their budget. Default: none.
	Watch Watch
	// Capped receives what frameworks' own limits came to. It may be nil.
	Capped func(task string, limit wire.Cap)
	// MPS: processes share an MPS server with other slots.
	MPS bool
	// Grace is the time between TERM and KILL. Default 5 s.
	Grace time.Duration
	// StartLimit bounds a start, imports included. Default 5 min.
	StartLimit time.Duration
	// Patience is how long a killed process may take to end before its call ends without it.
	// Only one that hangs in the kernel takes that long. Default 1 min.
	Patience time.Duration
	// Log and Notices may be nil.
	Log     *zap.Logger
	Notices *notice.List

	// Single: the process runs one item at a time and needs no board.
	Single bool
}

func (o Options) WithDefaults() Options {
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.StartLimit = cmp.Or(o.StartLimit, 5*time.Minute)
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.Log = cmp.Or(o.Log, zap.NewNop())
	return o
}

// channelDescriptor is where a template inherits its channel, above its children's.
const channelDescriptor = 9

// Start starts a task's process before its handshake, when it is its turn. With a channel
// it is a template.
func Start(ctx context.Context, task launch.Task, o Options, channel *os.File) (*Session, error) {
	started, err := starting.take(ctx)
	if err != nil {
		return nil, err
	}
	p, err := startNow(task, o, channel)
	if err != nil {
		started()
		return nil, err
	}
	p.started = started
	return p, nil
}

func startNow(task launch.Task, o Options, channel *os.File) (*Session, error) {
	argv := task.Argv(o.Runtime, o.RRuntime)
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
	go p.listen()
	return p, nil
}

// StartCommand starts a command, which has no wire.
func StartCommand(task launch.Task, o Options, argv []string, stdin, stdout *os.File) (*Session, error) {
	p := &Session{Task: task, o: o}
	if err := p.start(process.Command{Argv: argv, Stdin: stdin, Stdout: stdout}, process.TaskExposure); err != nil {
		return nil, err
	}
	return p, nil
}

// connected is the worker's side of a process that is still to be started with files, as
// its descriptors from 3 on: the wire and the board. The caller closes them when it has.
func connected(task launch.Task, o Options) (p *Session, files []*os.File, err error) {
	p = &Session{Task: task, o: o, Heard: make(chan wire.Message, 16), started: func() {}}
	if task.R != "" {
		// It has no board either: R maps no memory.
		ours, theirs, err := wire.Pipes()
		if err != nil {
			return nil, nil, err
		}
		p.conn = wire.New(ours)
		return p, theirs, nil
	}
	ours, theirs, err := wire.Pair(syscall.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	p.conn, files = wire.New(ours), []*os.File{theirs}
	if o.Single {
		// Single results need no board.
		return p, files, nil
	}
	memory, file, err := boardMemory()
	if err != nil {
		p.disconnect()
		theirs.Close()
		return nil, nil, err
	}
	if memory != nil {
		p.shared, p.Board = memory, wire.NewBoard(memory)
		files = append(files, file)
	}
	return p, files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// Adopt is Start for a process of one item that fork makes. fork gets the file for
// output and the process's end of the wire, which it closes.
func Adopt(task launch.Task, o Options, fork func(output, wire *os.File) (pid int, err error)) (*Session, error) {
	o.Single = true
	p, files, err := connected(task, o)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	if p.Process, err = process.New(process.TaskExposure, p.log()); err != nil {
		p.disconnect()
		return nil, err
	}
	pid, err := fork(p.Process.Out.File, files[0])
	if err == nil {
		err = p.Process.Adopt(pid)
	}
	if err != nil {
		p.disconnect()
		p.Process.Disown()
		return nil, err
	}
	p.follow()
	go p.listen()
	return p, nil
}

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
