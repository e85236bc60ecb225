package gputest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// Slot is a slot whose process is whatever the test says.
type Slot struct {
	mu    sync.Mutex
	state slot.State
	task  string
	// Stops counts the calls of Stop; Do, where it is set, is a call.
	Stops   atomic.Int32
	running atomic.Int32
	shared  atomic.Bool
	sharers int
	room    int64
	Do      func(ctx context.Context, task launch.Task, call slot.Call) error
}

// Run is slot.Slot's; two at once are an error where nothing is offered.
func (f *Slot) Run(ctx context.Context, task launch.Task, call slot.Call) error {
	if f.running.Add(1) != 1 && !f.shared.Load() {
		return errors.New("two calls in one slot")
	}
	defer f.running.Add(-1)
	f.Load(task.Name, slot.Ready)
	if f.Do != nil {
		return f.Do(ctx, task, call)
	}
	return nil
}

// Load puts a task into it, and a state.
func (f *Slot) Load(task string, s slot.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.task, f.state = task, s
}

// Offer lets the slot have so many calls, and room for so many items of another.
func (f *Slot) Offer(sharers int, room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared.Store(true)
	f.sharers, f.room = sharers, room
}

// Room is slot.Slot's.
func (f *Slot) Room() (sharers int, room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sharers, f.room
}

// State is slot.Slot's.
func (f *Slot) State() slot.State { f.mu.Lock(); defer f.mu.Unlock(); return f.state }

// Task is slot.Slot's.
func (f *Slot) Task() string { f.mu.Lock(); defer f.mu.Unlock(); return f.task }

// PID is slot.Slot's: there is no process.
func (f *Slot) PID() int { return 0 }

// Stats is slot.Slot's: nothing is counted.
func (f *Slot) Stats() slot.Stats { return slot.Stats{} }

// Clear is slot.Slot's.
func (f *Slot) Clear(context.Context) error { f.Load("", slot.Vacant); return nil }

// Stop is slot.Slot's.
func (f *Slot) Stop(context.Context) error { f.Stops.Add(1); return nil }

// NewSlot is vacant.
func NewSlot() *Slot { return &Slot{state: slot.Vacant} }
