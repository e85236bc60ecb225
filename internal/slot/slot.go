// Package slot runs the items of calls in a task process of its own: of one call at a
// time, or of several where the task runs many items at the same time.
//
// It owns which process a call gets, how items go there and results come back, the slot's
// state, the limits on an item's time, and whose fault a death is. It never knows
// Temporal, the store or other slots. Stop ends the process, waits until nothing of it is
// left, and refuses further calls.
//
// Fresh mode is persistent mode with a limit of one item per process.
package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/template"
	"github.com/gpumux/gpumux/internal/text"
)

// Options describe the place of a slot and the resources of its processes.
type Options = session.Options

// ErrStopped is returned by Run when the slot has been stopped.
var ErrStopped = errors.New("slot is stopped")

// Slot is a share of one device. Any goroutine may call its methods. Calls run one after
// the other, unless they can share a process. It holds what others see; its owner
// goroutine does the work.
type Slot struct {
	name     string
	log      *zap.Logger
	requests chan request
	gone     chan struct{}
	// startLimit bounds a look at a task's files.
	startLimit time.Duration
	// doom wakes the calls under way to look at doomed.
	doom chan struct{}
	// Stop ends life, which ends the contexts of the calls under way.
	life context.Context
	end  context.CancelCauseFunc

	mu    sync.Mutex // guards what follows, which only the owner goroutine writes
	state State
	task  string
	pid   int
	// watched follows the process's memory, out has its output; nil without a process.
	watched session.Watched
	stats   Stats
	running Running // zero where no item runs
	process string  // what the process said last of itself
	// sharers are the calls under way, room is how many further items their process can use.
	sharers int
	room    int64
	// starting is the start of a process under way, or the last one.
	starting Start
	// doomed is the number of the process that Recycle wants ended, counted as in
	// stats.Processes; doomedFor is why.
	doomed    int64
	doomedFor string
	// lingering: a killed process does not end. Then State returns Reclaiming.
	lingering bool
}

// request asks the owner for a call, or to end the process.
type request struct {
	ctx  context.Context
	call Call
	task launch.Task
	// edition is the one of the task's files, if a process is there that the call may share.
	edition string
	clear   bool
	reply   chan error
}

// New starts the owner goroutine of a slot that has its own templates. A process starts
// with the first call.
func New(o Options) *Slot { return NewSharing(nil, o) }

// NewSharing is New for a slot that shares its templates with others.
func NewSharing(templates *template.Set, o Options) *Slot {
	o = o.WithDefaults()
	s := &Slot{
		name: o.Name, log: o.Log.With(zap.String("slot", o.Name), zap.String("device", o.Device)), state: Vacant,
		requests: make(chan request), gone: make(chan struct{}), doom: make(chan struct{}, 1), startLimit: o.StartLimit,
		stats: Stats{Recycled: map[string]int64{}},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	owner := newOwner(s, templates, o)
	go owner.serveAll()
	return s
}

// Run begins the call's items in order and returns when each has been handed to Done. A
// *gpumux.Fault says that the process died, was killed or must not go on: the first item
// without a result was running then (Op "run"), or the first Batch of them, or the
// process could not start (Op "start"). Items after those have not run. When ctx ends,
// ctx's cause is returned, and none of the items runs any more: the process is killed, or
// where other calls share it told to end them. A killed process that does not end is a
// fault too; until it has, the slot is reclaiming and takes no other call.
func (s *Slot) Run(ctx context.Context, task launch.Task, call Call) error {
	r := request{ctx: ctx, call: call, task: task}
	if sharers, _ := s.Room(); sharers > 0 {
		// Here it holds up no running item. An error comes again where nothing is shared.
		r.edition, _ = task.Edition(ctx, cmp.Or(task.StartLimit, s.startLimit))
	}
	return s.ask(r)
}

// Room returns how many calls are under way, and how many items of another one their
// process could use beside theirs: 0 where it is not to be shared.
func (s *Slot) Room() (sharers int, room int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sharers, s.room
}

// offers publishes what Room returns. It reports whether another call may come for that.
func (s *Slot) offers(sharers int, room int64) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = room > 0 && (s.room == 0 || s.sharers != sharers)
	s.sharers, s.room = sharers, room
	return news
}

// Clear ends the slot's process, if it has one, so that its device memory is free;
// running calls are awaited first.
func (s *Slot) Clear(ctx context.Context) error { return s.ask(request{ctx: ctx, clear: true}) }

// Recycle ends the slot's process for a reason outside of it and returns when it is gone.
// The calls under way end with a fault that blames no item. Finished items count.
func (s *Slot) Recycle(ctx context.Context, why string) error {
	s.mu.Lock()
	s.doomed, s.doomedFor = s.stats.Processes, why
	s.mu.Unlock()
	signal(s.doom)
	return s.Clear(ctx)
}

func (s *Slot) ask(r request) error {
	r.reply = make(chan error, 1)
	select {
	case s.requests <- r:
		return <-r.reply
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-s.gone:
		return ErrStopped
	}
}

// Stop ends the process and waits until nothing of it is left, or until ctx ends. Running
// calls are ended with ErrStopped.
func (s *Slot) Stop(ctx context.Context) error {
	s.end(ErrStopped)
	select {
	case <-s.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop slot %s: %w", s.name, context.Cause(ctx))
	}
}

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

// PID is the number of the slot's process, or 0.
func (s *Slot) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

func (s *Slot) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Recycled = maps.Clone(s.stats.Recycled)
	if !s.running.Began.IsZero() {
		running := s.running
		running.Progress = cmp.Or(running.Progress, s.process)
		stats.Running = &running
	}
	if s.state == Starting {
		stats.Starting = new(s.starting)
	}
	if s.watched != nil {
		stats.Held = s.watched.Held()
	}
	return stats
}

// The methods below are for the owner goroutine.

// enter is the only writer of the state. A move that the table does not have is a mistake
// in this package.
func (s *Slot) enter(to State, why string) {
	s.mu.Lock()
	from := s.state
	s.state = to
	s.mu.Unlock()
	if !slices.Contains(next[from], to) {
		panic(fmt.Sprintf("slot %s: no move from %s to %s (%s)", s.name, from, to, why))
	}
	s.log.Debug("slot state", zap.String("from", string(from)), zap.String("to", string(to)), zap.String("why", why))
}

func (s *Slot) starts(task, why string) {
	s.mu.Lock()
	s.starting = Start{Task: task, Began: time.Now()}
	s.mu.Unlock()
	s.enter(Starting, why)
}

func (s *Slot) occupied(p *occupant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Processes++
	s.task, s.pid, s.watched = p.session.Task.Name, p.session.Process.PID, p.session.Memory.Watched
}

func (s *Slot) vacated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.task, s.pid, s.watched, s.process = "", 0, nil, ""
}

func (s *Slot) tally(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// runs publishes which item of which map runs and when it began. A zero time means that
// none runs.
func (s *Slot) runs(mapID string, index int64, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.IsZero() || s.running.Began.IsZero() || s.running.Index != index || s.running.Map != mapID {
		s.running = Running{Map: mapID, Index: index, Began: began}
	}
}

// progressed publishes the report of the item that runs, or of the process, in which
// there may be many numbers.
func (s *Slot) progressed(value []byte, item bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if item {
		s.running.Progress = text.Excerpt(value)
		return
	}
	s.process = string(value[:min(len(value), 1<<10)])
}

// doomedNow is why the present process is to be ended, or "".
func (s *Slot) doomedNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 || s.doomed != s.stats.Processes {
		return ""
	}
	return s.doomedFor
}

// linger publishes whether a killed process does not end. It reports whether that is new.
func (s *Slot) linger(lingers bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.lingering != lingers
	s.lingering = lingers
	return changed
}
