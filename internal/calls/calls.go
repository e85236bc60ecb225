// Package calls has the requests of activities to slots, and the answers.
//
// It owns the types that both sides share. It never runs anything, so nothing here stops.
package calls

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"time"

	"github.com/gpumux/gpumux"
)

// Item is one input and its position in the map's input, from 0. Value or Arrays is set.
type Item struct {
	Index int64
	Value json.RawMessage
	// Arrays is a value whose arrays are bytes, as Result.Arrays has it. Processes that take
	// only JSON get it as that.
	Arrays []byte
}

// Process is what a call learns of the process that is to run its items.
type Process struct {
	Edition string
	// Batch is the most items that the task takes in one call, Concurrent how many it runs
	// at the same time; 0: one after the other.
	Batch, Concurrent int
}

// Work is what a call runs, and what becomes of it. Its owner implements it.
type Work interface {
	// Items are pulled in a goroutine of the call's own as the process gets room for them.
	// After an error the items before it still run; then the call ends with the error. No
	// other end of the call waits for an item that is being pulled.
	Items() iter.Seq2[Item, error]
	// Meet is called with a process before that runs items. An error ends the call, and the
	// process stays.
	Meet(p Process) error
	// Keep stores a file of an item, from its beginning, before the item is Done. Its error
	// ends the call, and is why ctx ended. It is called only where Call.Files is set.
	Keep(ctx context.Context, index int64, name string, file *os.File) error
	// Used takes what GPUs did for a call that ends; nil where nobody looked at one.
	Used(use *gpumux.GPUUse)
	// Done takes each result and owns it. They come in the order of the items, but in that
	// of their ends where items run at the same time.
	Done(d Done)
}

// Single is one item, which runs in any process and leaves no files.
type Single struct {
	Value json.RawMessage
	// Result is there after a call without an error.
	Result Done
}

func (s *Single) Items() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) { yield(Item{Value: s.Value}, nil) }
}

func (s *Single) Done(d Done) { s.Result = d }

func (*Single) Meet(Process) error { return nil }

func (*Single) Used(*gpumux.GPUUse) {}

// Keep is never called.
func (*Single) Keep(context.Context, int64, string, *os.File) error { return errors.ErrUnsupported }

// Call asks for a task over items in one slot.
type Call struct {
	// Task is the task's name. Map is the map of the items, for people.
	Task, Map string
	// Mode and Timeout override the task's own; zero keeps them.
	Mode     gpumux.Mode
	Timeout  time.Duration
	Attempts int
	RetryOn  []string
	// Arg is GPUMUX_ARG of the call's processes, or the file GPUMUX_ARG_FILE where it is
	// large. ArgFile is an object in the store that holds it. Default: nothing.
	Arg     json.RawMessage
	ArgFile string
	Clean   bool
	// Apart keeps other calls out of the slot meanwhile. Without it calls of a task whose
	// items run at the same time may share a process.
	Apart bool
	// Avoid are devices on which the items failed; they run elsewhere where there is
	// another.
	Avoid []string
	// Whole asks for a whole device: its other slots wait, and their budgets are added.
	Whole bool
	// Patience is how long a call that any slot can serve waits for one. Default: for ever.
	Patience time.Duration

	// Edition is the edition of the task's code that the items need. Default: that of the
	// files when the first process of the call starts.
	Edition string

	// Arrays takes values with arrays as Result.Arrays, so that no text is made of them.
	Arrays bool
	// Files says that items may leave files, which Work.Keep stores.
	Files bool
	// Len is how many items there are at most. Default: unknown.
	Len int64
}

type Done struct {
	gpumux.Result
	// Busy is the time that the item took in the task process.
	Busy time.Duration
	// Peak is the most bytes that the process and its descendants needed while the item ran:
	// device memory on a GPU, less what frameworks keep unused where they tell; resident
	// memory on the CPU. 0: not measured, as for most items under 20 ms. A micro-batch
	// shares one. Budget is their limit; 0: none.
	Peak, Budget int64
	// GPUs is how many GPUs the slot has; 0 on the CPU.
	GPUs int
	// Concurrent says that other items ran at the same time, so that Busy is a share of the
	// process's time.
	Concurrent bool
}

// ErrLapsed is in the cause of a context whose call must not go on, because its items may
// be running elsewhere: the process is killed without grace, and its results no longer
// count.
var ErrLapsed = errors.New("the time of the call is over")
