package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// Holder gives slots to leases.
type Holder interface {
	// Hold waits for a slot and keeps it from everybody else until it is released.
	Hold(ctx context.Context, lease contract.Lease) (Seat, error)
}

// Seat is a slot that a lease has.
type Seat interface {
	// Runner runs a call. A fault slot_lost says, once, that the process has ended on which
	// it builds.
	Runner
	// Held ends when the worker must let go of the slot.
	Held() context.Context
	// Where names the slot, and the residents of its process now.
	Where() gpumux.Seat
	// Lost says why the slot can serve no more calls, or nil.
	Lost() *gpumux.Fault
	// Scratch is an empty file that processes of a task may read and write.
	Scratch(task string) (*os.File, error)
	// Release ends the process and gives the slot back.
	Release()
}

// largestResult is the most bytes of a value that travels inline, and that a call in a
// lease returns.
const largestResult = 1 << 20

// Leases serves the queue on which leases ask for slots of a pool.
type Leases struct {
	Holder Holder
	Store  *store.Store
	// Serve serves a lease's own queue until stop is called.
	Serve func(queue string, register func(worker.Registry)) (stop func(), err error)
}

// Register registers HoldSlot.
func (l *Leases) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(l.holdSlot), activity.RegisterOptions{Name: contract.HoldSlot})
}

// errClosed ends a lease whose workflow needs it no more.
var errClosed = errors.New("the lease was closed")

// holdSlot holds a slot for a lease and serves the lease's queue, until the lease is
// closed or cancelled, its time is over, or the worker stops. Its error is final:
// the workflow decides what comes next.
func (l *Leases) holdSlot(ctx context.Context, in contract.Lease) (gpumux.Seat, error) {
	h := &holding{Leases: l, lease: in, turn: make(chan struct{}, 1)}
	// The context of a heartbeat is the activity's own: the SDK cancels an activity whose
	// heartbeat fails, as with a lease that has ended.
	activityContext := ctx
	defer every(contract.PauseOf(activity.GetInfo(activityContext).HeartbeatTimeout), func() { activity.RecordHeartbeat(activityContext, h.now()) })()
	ctx, h.end = context.WithCancelCause(ctx)
	defer h.end(nil)
	seat, err := l.Holder.Hold(ctx, in)
	if err != nil {
		return gpumux.Seat{}, lost(err)
	}
	defer seat.Release()
	held := seat.Held()
	defer context.AfterFunc(held, func() { h.end(context.Cause(held)) })()
	ttl := time.Duration(in.TTL)
	h.begin(seat, time.Now().Add(ttl))
	activity.RecordHeartbeat(activityContext, h.now()) // people see it there
	ctx, cancel := context.WithTimeoutCause(ctx, ttl, &gpumux.Fault{
		Kind: gpumux.FaultSlotLost, Op: "run", Message: fmt.Sprintf("the time to live of the lease, %s, is over", ttl), Hint: "give it a longer TTL, or fewer calls",
	})
	defer cancel()
	h.life = ctx
	closeQueue, err := l.Serve(in.Queue, func(r worker.Registry) {
		r.RegisterActivityWithOptions(checked(h.callSlot), activity.RegisterOptions{Name: contract.CallSlot})
	})
	if err != nil {
		return gpumux.Seat{}, lost(fmt.Errorf("serve the queue of the lease: %w", err))
	}
	defer closeQueue()
	h.await(ctx, activity.GetWorkerStopChannel(ctx))
	if err := context.Cause(ctx); !errors.Is(err, errClosed) {
		return h.now(), lost(err)
	}
	return h.now(), nil
}

// await returns when the lease is over and no call runs. A worker that stops lets the
// call that runs go on to its end.
func (h *holding) await(ctx context.Context, stop <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-stop:
		select {
		case h.turn <- struct{}{}:
			h.end(errors.New("the worker that held the slot stops"))
			return
		case <-ctx.Done():
		}
	}
	h.turn <- struct{}{}
}

// lost is the error of a lease that has no slot any more.
func lost(err error) error {
	var fault *gpumux.Fault
	if errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.As(err, &fault) {
		fault = &gpumux.Fault{Kind: gpumux.FaultSlotLost, Op: "run", Message: err.Error(), Blameless: true}
	}
	return final(fault)
}

// holding is a lease that has a slot.
type holding struct {
	*Leases
	lease contract.Lease
	seat  Seat
	// life ends with the lease.
	life context.Context
	end  context.CancelCauseFunc
	// turn is full while a call runs.
	turn chan struct{}

	mu    sync.Mutex // guards what follows
	where gpumux.Seat
}

func (h *holding) begin(seat Seat, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seat, h.where = seat, seat.Where()
	h.where.Since, h.where.Until = time.Now(), until
}

// now describes the lease for people.
func (h *holding) now() gpumux.Seat {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seat != nil {
		now := h.seat.Where()
		h.where.Residents, h.where.ResidentBytes = now.Residents, now.ResidentBytes
	}
	return h.where
}

// callSlot does one call, or another step of a lease. One runs at a time.
func (h *holding) callSlot(ctx context.Context, in contract.SlotCall) (contract.SlotAnswer, error) {
	switch {
	case in.Close:
		defer h.end(errClosed)
		return contract.SlotAnswer{Seat: h.now()}, nil
	case in.Open:
		return contract.SlotAnswer{Seat: h.now()}, nil
	}
	defer heartbeat(ctx)()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(lost(context.Cause(h.life))) })()
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return contract.SlotAnswer{}, context.Cause(ctx)
	}
	h.note(in.Task)
	defer h.note("")
	if fault := h.seat.Lost(); fault != nil {
		return contract.SlotAnswer{}, final(fault)
	}
	result, err := h.run(ctx, in)
	var fault *gpumux.Fault
	switch {
	case ctx.Err() != nil:
		return contract.SlotAnswer{}, context.Cause(ctx)
	case errors.As(err, &fault):
		return contract.SlotAnswer{}, final(fault)
	case err != nil:
		return contract.SlotAnswer{}, classify(err)
	case result.Fault != nil:
		return contract.SlotAnswer{}, final(result.Fault)
	case len(result.Value) > largestResult:
		return contract.SlotAnswer{}, final(&gpumux.Fault{
			Kind: gpumux.FaultTaskError, Op: "run", Task: in.Task,
			Message: fmt.Sprintf("the value has %d bytes, more than the %d that a call returns", len(result.Value), largestResult),
			Hint:    "keep it on the slot and return its handle (gpumux.keep), or write it to a file and return its path",
		})
	}
	return contract.SlotAnswer{Value: result.Value, Output: result.Printed, Seat: h.now()}, nil
}

// note takes down which call runs; "" says that one has ended.
func (h *holding) note(task string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.where.Task = task; task == "" {
		h.where.Calls++
	}
}

func (h *holding) run(ctx context.Context, in contract.SlotCall) (gpumux.Result, error) {
	switch {
	case in.Save != nil || in.Load != nil:
		return h.move(ctx, in)
	case len(in.Drop) > 0:
		return h.drop(ctx, in.Drop)
	}
	return h.call(ctx, Call{Task: in.Task, Timeout: time.Duration(in.Timeout), Attempts: in.Attempts}, in.Item)
}

// call runs one item in the lease's process.
func (h *holding) call(ctx context.Context, call Call, item json.RawMessage) (gpumux.Result, error) {
	call.Lease, call.Rebuilt, call.Mode = h.lease.ID, h.lease.Rebuilt, gpumux.ModePersistent
	work := calls.Single{Value: item}
	err := h.seat.Run(ctx, call, &work)
	return work.Result.Result, err
}

// Functions of the Python runtime that a lease calls.
const (
	saveTarget = "gpumux.process.handle:_save"
	loadTarget = "gpumux.process.handle:_load"
	dropTarget = "gpumux.process.handle:_drop"
)

// move saves a resident to the store, or keeps what was saved there as a resident. The
// process and the worker share a file for it.
func (h *holding) move(ctx context.Context, in contract.SlotCall) (gpumux.Result, error) {
	resident, target, arg := in.Save, saveTarget, map[string]any{"value": in.Save}
	if in.Load != nil {
		resident, target, arg = in.Load, loadTarget, map[string]any{"key": in.Load.Key}
	}
	file, err := h.seat.Scratch(resident.Task)
	if err != nil {
		return gpumux.Result{}, fmt.Errorf("make a file for what is to move: %w", err)
	}
	defer func() {
		file.Close()
		os.Remove(file.Name())
	}()
	if in.Load != nil {
		if err := h.fetch(ctx, in.Object, file); err != nil {
			return gpumux.Result{}, err
		}
	}
	arg["path"] = file.Name()
	raw, err := json.Marshal(arg)
	if err != nil {
		return gpumux.Result{}, err
	}
	result, err := h.call(ctx, Call{Task: resident.Task, Target: target}, raw)
	switch {
	case err != nil || result.Fault != nil:
		return result, err
	case in.Save != nil:
		return gpumux.Result{}, h.put(ctx, in.Object, file)
	}
	// After an error it may run again; the workflow has the object forgotten in the end.
	return result, h.Store.Objects.Delete(ctx, in.Object)
}

// put copies a file into the store.
func (h *holding) put(ctx context.Context, key string, file *os.File) error {
	to, err := h.Store.Objects.CreateAs(ctx, key, objects.Creation{Reserved: true})
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, file); err != nil {
		to.Abort()
		return fmt.Errorf("store what is to move: %w", err)
	}
	return to.Close()
}

// fetch copies an object of the store into a file.
func (h *holding) fetch(ctx context.Context, key string, file *os.File) error {
	from, err := h.Store.Objects.Read(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err = io.Copy(file, from); err != nil {
		return fmt.Errorf("fetch what is to move: %w", err)
	}
	return nil
}

// drop lets go of residents.
func (h *holding) drop(ctx context.Context, handles []gpumux.Resident) (gpumux.Result, error) {
	type fields gpumux.Resident // as handles they would become their values
	list := make([]fields, len(handles))
	for i, each := range handles {
		list[i] = fields(each)
	}
	raw, err := json.Marshal(map[string]any{"handles": list})
	if err != nil {
		return gpumux.Result{}, err
	}
	return h.call(ctx, Call{Task: handles[0].Task, Target: dropTarget}, raw)
}
