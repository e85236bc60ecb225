package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
)

// checkpoint is how far a stretch of a reduce has come: what one attempt leaves to the next in its heartbeat.
type checkpoint struct {
	// Next is the first item that is not in Stack, Count how many values are.
	Next  int64 `json:"next"`
	Count int64 `json:"count"`
	// Stack is what the values before came to, or lies in the store under Key, its state, when it is too large for a heartbeat.
	Stack []rest `json:"stack,omitempty"`
	Key   string `json:"key,omitempty"`
}

// rest is an operand of the stack.
type rest struct {
	gpumux.Span
	Value json.RawMessage `json:"value"`
	Rank  int             `json:"rank,omitempty"`
}

const (
	// stateShare keeps what writing states costs at a twentieth of the time, which the reduce waits for.
	stateShare = 20
	// stateAge is the time after which the server has been told of a state, or the attempt that stored it is over.
	stateAge = 2 * gpumux.HeartbeatTimeout
	// clearLimit bounds the deletion of states at the end, which the result waits for.
	clearLimit = 10 * time.Second
)

// keeper saves checkpoints and tells the server of the newest one.
type keeper struct {
	r     *reducer
	clock func() time.Time
	saved time.Time
	took  time.Duration
	// states are those in the store that a heartbeat may still name, oldest first.
	states []state

	mu  sync.Mutex
	now *checkpoint
}

// state is an object in the store and when it was written.
type state struct {
	key string
	at  time.Time
}

// beat heartbeats until stopped.
func (k *keeper) beat() (stop func()) {
	return every(func() time.Duration { return gpumux.HeartbeatEvery }, k.tell)
}

func (k *keeper) tell() {
	k.mu.Lock()
	now := k.now
	k.mu.Unlock()
	if now == nil {
		activity.RecordHeartbeat(k.r.ctx)
	} else {
		activity.RecordHeartbeat(k.r.ctx, now)
	}
}

// recall takes over what the last attempt told, so that a heartbeat of this one does not take it back.
func (k *keeper) recall() {
	if !activity.HasHeartbeatDetails(k.r.ctx) {
		return
	}
	var c checkpoint
	err := activity.GetHeartbeatDetails(k.r.ctx, &c)
	if err == nil {
		err = c.fits(k.r.in.Span, k.folder())
	}
	if err != nil {
		k.forget(err)
		return
	}
	k.now = &c
}

// resume finds what the last attempt left, or nothing. What cannot be read costs its work, not the reduce.
func (k *keeper) resume() (next, count int64, stack []operand) {
	in := k.r.in
	if k.now == nil {
		return in.Start, 0, nil
	}
	c := *k.now
	var err error
	if c.Key != "" {
		err = k.read(&c)
	}
	if err != nil {
		k.forget(err)
		return in.Start, 0, nil
	}
	for _, o := range c.Stack {
		stack = append(stack, operand{o.Span, o.Value, o.Rank})
	}
	if c.Key != "" {
		k.states = append(k.states, state{c.Key, k.clock()})
	}
	return c.Next, c.Count, stack
}

func (k *keeper) forget(err error) {
	activity.GetLogger(k.r.ctx).Warn("what the last attempt at a reduce left is unreadable; starting over", "error", err)
	k.mu.Lock()
	k.now = nil
	k.mu.Unlock()
}

func (k *keeper) read(c *checkpoint) error {
	body, err := k.r.store.Read(k.r.ctx, c.Key, 0, -1)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &c.Stack); err != nil {
		return err
	}
	return stackFits(c.Stack, k.r.in.Span)
}

// save keeps the state unless that was done a moment ago. One that cannot be kept costs its work if the worker dies, no more.
func (k *keeper) save(next, count int64, stack []operand) {
	if time.Since(k.saved) < max(diskEvery, stateShare*k.took) {
		return
	}
	began := time.Now()
	c := &checkpoint{Next: next, Count: count}
	bytes := 0
	for _, o := range stack {
		c.Stack = append(c.Stack, rest{o.Span, o.value, o.rank})
		bytes += len(o.value)
	}
	if bytes > inlinePartial {
		if err := k.write(c); err != nil {
			activity.GetLogger(k.r.ctx).Warn("how far a reduce has come could not be stored", "error", err)
			c = nil
		}
	}
	k.saved, k.took = time.Now(), time.Since(began)
	if c != nil {
		k.mu.Lock()
		k.now = c
		k.mu.Unlock()
		k.tell()
	}
}

// write puts the stack into the store. The name differs from that of the last one, which a heartbeat may still name.
func (k *keeper) write(c *checkpoint) error {
	text, err := json.Marshal(c.Stack)
	if err != nil {
		return err
	}
	key := stateKey(k.folder(), c.Next)
	w, err := k.r.store.Create(k.r.ctx, key)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	c.Stack, c.Key = nil, key
	k.states = append(k.states, state{key, k.clock()})
	for len(k.states) > 1 && k.clock().Sub(k.states[1].at) > stateAge {
		if k.r.store.Delete(k.r.ctx, k.states[0].key) != nil {
			break // tried again with the next one, and at the end
		}
		k.states = k.states[1:]
	}
	return nil
}

// stateKey is where the state at an item lies.
func stateKey(folder string, next int64) string { return fmt.Sprintf("%s/%012d.json", folder, next) }

// folder is where the states of all attempts at the stretch lie.
func (k *keeper) folder() string {
	return fmt.Sprintf("%s/%012d-%012d.state", k.r.in.Folder, k.r.in.Start, k.r.in.End)
}

// clear deletes what this attempt and those before stored on the way, when no other attempt comes.
func (k *keeper) clear() {
	if len(k.states) == 0 && activity.GetInfo(k.r.ctx).Attempt <= 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.r.ctx), clearLimit)
	defer cancel()
	if err := k.r.store.DeleteFolder(ctx, k.folder()); err != nil {
		activity.GetLogger(k.r.ctx).Warn("the state of a reduce is done with but stays in the store", "error", err)
	}
}
