package activities

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"time"

	"github.com/gpumux/gpumux"
)

// Call asks for a task over items in one slot.
type Call struct {
	Task string
	// Map is the map that the items are of, for people.
	Map string
	// Edition is the edition of the task's code that the items are to run with. Default: any.
	Edition string
	// Ran is called with the edition of a process before it runs items of the call. Nil is not called.
	Ran func(edition string)
	// Mode, Timeout and Attempts override the task's own; zero keeps them.
	Mode     gpumux.Mode
	Timeout  time.Duration
	Attempts int
	// Arg is what processes of the call have as GPUMUX_ARG. Default: nothing.
	Arg json.RawMessage
	// Clean asks for a process that has not run any item.
	Clean bool
	// Avoid are devices on which the items failed; they run elsewhere where there is another.
	Avoid []string
	// Lease and Rebuilt are those of the lease that the call belongs to, Process is the process that it needs, Target the function that is
	// called in place of the task's.
	Lease   string
	Rebuilt bool
	Process int
	Target  string
	// Whole asks for a whole device: its other slots wait meanwhile, and the budget is all that they have together.
	Whole bool
	// Patience is how long a call that any slot can serve waits for one. Default: for ever.
	Patience time.Duration
	// Arrays takes values with arrays as Result.Arrays.
	Arrays bool
	// Len is how many Items there are at most. Default: nobody knows.
	Len   int64
	Items iter.Seq2[gpumux.Item, error]
	// Peak is called before Done with the most bytes that the item held, if that was measured, and with its budget.
	Peak func(held, budget int64)
	// Keep stores a file of an item before its result is Done; its error is why ctx ended. Default: items may leave no files.
	Keep func(ctx context.Context, index int64, name string, file *os.File) error
	// Done takes each result in the order of the items.
	Done func(gpumux.Result)
}

// ErrBusy ends a call that got no slot within its Patience.
var ErrBusy = errors.New("no slot of the worker became free in time")

// Runner runs calls in slots.
type Runner interface {
	// Run blocks until a slot is free and the call has ended. It may be called from many goroutines. A *gpumux.Fault as error
	// ends the call: with Op "start" no item is to blame, otherwise the first item without a result is; no later item has
	// run, and with an Edition that is the one which is there instead of the call's. When ctx ends, the process is gone before Run returns.
	Run(ctx context.Context, call Call) error
}
