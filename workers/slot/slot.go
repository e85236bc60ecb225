package slot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/session"
	"github.com/gpumux/gpumux/workers/slot/template"
)

// Options say where a slot sits.
type Options struct {
	// Name is pool/number, unique in the worker.
	Name string
	Host string
	// Device is the device's UUID, or "CPU".
	Device string
	// Memory is the budget. Default: none.
	Memory gpumux.Size
	// Room is what the budget leaves on each device for a framework's allocations. Default: they are not limited.
	Room gpumux.Size
	// Mode is for calls and tasks that don't say. Default persistent.
	Mode gpumux.Mode
	// Hygiene is for tasks that don't say. Default on.
	Hygiene launch.Hygiene
	// Env is what the device puts into a task process's environment, such as CUDA_VISIBLE_DEVICES.
	Env map[string]string
	// Home is what HOME is in a task process's environment. Default: the worker's.
	Home string
	// Runtime is the Python runtime's main.py, as pyruntime.Install returned it, and RRuntime R's main.R, of rruntime.Install.
	Runtime, RRuntime string
	// Watch follows the memory of task processes and ends those over their budget. Default: none.
	Watch session.Watch
	// Cgroups limits the memory of task processes on the CPU as well, at their budget. Default: none.
	Cgroups *process.Cgroups
	// Capped takes what frameworks' own limits came to, and what was measured later, from the slot's goroutine. Loaded takes the bytes that a persistent process
	// of a slot with a budget holds when its task is loaded and nothing has run, where that is known. Default: nobody is told.
	Capped func(session.Cap)
	Loaded func(task string, bytes int64)
	// MPS says that processes share an MPS server with those of other slots. Ending is called once before a process is killed, with
	// whether another is one of its; it has to return soon. Default: nothing.
	MPS    bool
	Ending func(ours func(pid int) bool)
	// Templates are shared with other slots. Default: the slot's own.
	Templates *template.Set
	// Grace is the time between TERM and KILL. Default 5 s.
	Grace time.Duration
	// StartLimit bounds a process's start, imports included. Default 5 min.
	StartLimit time.Duration
	// Log may be nil.
	Log *zap.Logger

	// patience is lingerLimit. Tests have less.
	patience time.Duration
}

// ErrStopped is returned by Run when the slot has been stopped.
var ErrStopped = errors.New("slot is stopped")

// Slot is a share of one device. Its methods may be called from any goroutine; calls run one after the other.
type Slot struct {
	o     Options
	log   *zap.Logger
	calls chan request
	gone  chan struct{}
	// doom wakes a call whose process may be doomed.
	doom chan struct{}
	// life ends with Stop, and with it the context of a call that is served then.
	life context.Context
	end  context.CancelCauseFunc

	mu    sync.Mutex // guards what follows, which only the owner goroutine writes
	state State
	task  string
	pid   int
	// watched follows the process's memory; nil without a process.
	watched session.Watched
	// out is what the process prints; nil without one.
	out     *process.Output
	stats   Stats
	running Running // zero where no item runs
	// doomed is the process, by its number in stats, that Recycle ends, and why it does.
	doomed    int64
	doomedFor string
	// lingering says that a killed process does not end: the slot reclaims, whatever its owner goroutine was about.
	lingering bool

	// The owner goroutine's own.
	process  *occupant
	failures int
	// scratch is where its processes leave files; empty until one may.
	scratch string
	// serving is the request that is served and not answered, flow that of its call.
	serving *request
	flow    *flow
	// templates are what fresh processes are forked from; owned says that they end with the slot.
	templates *template.Set
	owned     bool
	// kills is the counter of memory kills around the worker as the call began.
	kills int
}

type request struct {
	ctx   context.Context
	call  order
	clear bool
	reply chan error
}

// New starts the slot's owner goroutine; a process starts with the first call.
func New(o Options) *Slot {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	if o.StartLimit == 0 {
		o.StartLimit = 5 * time.Minute
	}
	if o.patience == 0 {
		o.patience = lingerLimit
	}
	s := &Slot{
		o: o, log: o.Log.With(zap.String(logkey.Slot, o.Name), zap.String(logkey.Device, o.Device)), state: Vacant,
		calls: make(chan request), gone: make(chan struct{}), doom: make(chan struct{}, 1),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if s.templates = o.Templates; s.templates == nil {
		s.templates, s.owned = template.NewSet(o.Log), true
	}
	s.templates.Share(1)
	go s.own()
	return s
}

// Run runs the call's items in order and returns when each has been handed to Done. A *gpumux.Fault says that the process
// died, was killed or must not go on: the first item without a result was running then (Op "run"), or the process could not
// start (Op "start"). When ctx ends, the process is killed and ctx's cause is returned. Items after the faulty one have not
// run. A killed process that does not end is a fault too; until it has, the slot is reclaiming and takes no other call.
func (s *Slot) Run(ctx context.Context, task launch.Task, call calls.Call) error {
	return s.ask(ctx, request{ctx: ctx, call: order{call, task}, reply: make(chan error, 1)})
}

// Clear ends the slot's process, if it has one, so that its device memory is free; a running call is awaited first.
func (s *Slot) Clear(ctx context.Context) error {
	return s.ask(ctx, request{ctx: ctx, clear: true, reply: make(chan error, 1)})
}

func (s *Slot) ask(ctx context.Context, r request) error {
	select {
	case s.calls <- r:
		return <-r.reply
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.gone:
		return ErrStopped
	}
}

// State is what the slot is doing at this moment.
func (s *Slot) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lingering {
		return Reclaiming
	}
	return s.state
}

// Task is the name of the task that the slot's process is loaded with, or "".
func (s *Slot) Task() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.task
}

// Stop ends the process and waits until nothing of it is left, or until ctx ends. A running call is ended with ErrStopped.
func (s *Slot) Stop(ctx context.Context) error {
	s.end(ErrStopped)
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop slot %s: %w", s.o.Name, context.Cause(ctx))
	}
}
