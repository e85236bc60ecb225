package activities

import (
	"context"
	"errors"

	"github.com/gpumux/gpumux/internal/calls"
)

// Call asks for a task over items in one slot, and Done is a finished item.
type (
	Call = calls.Call
	Done = calls.Done
)

// ErrBusy ends a call that got no slot within its Patience.
var ErrBusy = errors.New("no slot of the worker became free in time")

// Runner runs calls in slots.
type Runner interface {
	// Run blocks until a slot is free and the call has ended. It may be called from many
	// goroutines. A *gpumux.Fault as error ends the call: with Op "start" no item is to
	// blame, otherwise the first item without a result is; no later item has run, and with
	// an Edition that is the one which is there instead of the call's. When ctx ends, the
	// process is gone before Run returns.
	Run(ctx context.Context, call Call) error
}
