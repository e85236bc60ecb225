package slot

import (
	"errors"
	"iter"
	"reflect"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// Task says how the task process of one task is started. Exactly one of Python, Command and Program is set.
type Task struct {
	// Name is what maps call the task.
	Name string
	// Python is "module:function" or "file.py:function", found from Dir.
	Python string
	// Own refuses a function that the module has from elsewhere, such as one that it imports.
	Own bool
	// Interpreter is the Python to start. Default "python3".
	Interpreter string
	// Command is a program and its arguments, run once per item: the item on standard input and in the place of {}, the result on
	// standard output.
	Command []string
	// Text takes a command's output as one JSON string instead of as JSON.
	Text bool
	// Program is a task process of its own that speaks the wire, such as one made with wire.Serve.
	Program []string
	// Dir is the working folder. Default: the worker's.
	Dir string
	// Env adds to the environment, PassEnv names what is passed on from the worker's.
	Env     map[string]string
	PassEnv []string
	// User is whom it runs as, where the worker may start processes as another user. Default: the worker's.
	User *process.User
	// Mode is the task's own mode. Default: the slot's.
	Mode gpumux.Mode
	// Fresh is how the process of a fresh item comes to be. Default Fork.
	Fresh Fresh
	// Timeout bounds one item, or one micro-batch. Default: none.
	Timeout time.Duration
	// RecycleItems and RecycleAge replace a persistent process after so many items or so much time. Default: never.
	RecycleItems int
	RecycleAge   time.Duration
}

// Call is one request to a slot: a task over items.
type Call struct {
	Task Task
	// Mode, Timeout and Attempts override the task's; zero keeps them.
	Mode     gpumux.Mode
	Timeout  time.Duration
	Attempts int
	// Clean asks for a process that has not run any item yet.
	Clean bool
	// Edition is the edition of the task's code that the items are to run with. Default: that of the files as they are when the
	// first process of the call starts.
	Edition string
	// Ran takes, from the slot's own goroutine, the edition of a process before it runs items of the call. Default: nobody is told.
	Ran func(edition string)
	// Memory overrides the slot's budget, in a process of the call's own. Room and Env override the slot's for a process that starts
	// with this call. Zero keeps what the slot has.
	Memory gpumux.Size
	Room   gpumux.Size
	Env    map[string]string
	// Held says nil for as long as nobody else may run the items, and why not otherwise, with ErrLapsed in the error's chain. It is
	// asked before a result counts and before a death is anybody's fault: this program may have been stopped until a moment
	// ago. Default: for ever.
	Held func() error
	// Items are pulled as the process gets room for them, in a goroutine of the call's own. An error ends them: what was pulled before
	// still runs, then the call ends with it. Whatever else ends the call does not wait for an item that is being pulled: the
	// goroutine ends when that has come.
	Items iter.Seq2[gpumux.Item, error]
	// Done takes each result, in the order of the items, from the slot's own goroutine; the result belongs to it.
	Done func(Done)
}

// Done is a finished item.
type Done struct {
	gpumux.Result
	// Busy is the time that the item took in the task process.
	Busy time.Duration
	// Peak is the most bytes that the process and its descendants held while the item ran: device memory on a GPU, resident
	// memory on the CPU. It is 0 where it was not measured, as for most items that take less than 20 ms; those of a micro-batch
	// share one. Budget is what they might hold; 0 means no budget.
	Peak, Budget int64
}

// mode is the call's, else the task's, else the slot's, else persistent. A command has no process to keep.
func (c Call) mode(slot gpumux.Mode) gpumux.Mode {
	if len(c.Task.Command) > 0 {
		return gpumux.Fresh
	}
	for _, m := range []gpumux.Mode{c.Mode, c.Task.Mode, slot} {
		if m != "" {
			return m
		}
	}
	return gpumux.Persistent
}

func (c Call) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return c.Task.Timeout
}

// lapsed is what Held says.
func (c Call) lapsed() error {
	if c.Held == nil {
		return nil
	}
	return c.Held()
}

func (c Call) attempts() int { return max(1, c.Attempts) }

// same reports whether a process of one task can serve the other.
func same(a, b Task) bool { return reflect.DeepEqual(a, b) }

// ErrLapsed is in the cause of a context whose call must not go on, because its items may be running elsewhere: the process is
// killed without grace, and what it said no longer counts.
var ErrLapsed = errors.New("the time of the call is over")
