package slot

import (
	"errors"
	"iter"
	"os"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// Call is one request to a slot: a task over items.
type Call struct {
	Task launch.Task
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
	// Lease names the lease that the call belongs to. All its calls run in one process, which keeps what they leave and ends with Clear,
	// or with a call of anybody else. Their tasks must be alike in all but their functions. Rebuilt says that handles of the lease's
	// earlier processes stand for what is kept under the same keys. Default: no lease.
	Lease   string
	Rebuilt bool
	// Process is the number of the lease's process that the call needs, since it builds on what earlier ones left there. Without that
	// process the call ends with ErrGone before it runs. Default: any.
	Process int
	// Target is the function to call in place of the task's, in the process of a lease. Default: the task's.
	Target string
	// Arrays takes values with arrays as Result.Arrays, so that no text is made of them. Default: all values are JSON.
	Arrays bool
	// Held says nil for as long as nobody else may run the items, and why not otherwise, with ErrLapsed in the error's chain. It is
	// asked before a result counts and before a death is anybody's fault: this program may have been stopped until a moment
	// ago. Default: for ever.
	Held func() error
	// Items are pulled as the process gets room for them, in a goroutine of the call's own. An error ends them: what was pulled before
	// still runs, then the call ends with it. Whatever else ends the call does not wait for an item that is being pulled: the
	// goroutine ends when that has come.
	Items iter.Seq2[gpumux.Item, error]
	// Keep stores a file that an item left, before its result is Done. It reads the file from its beginning. An error ends the call: it
	// is why that had to. Default: items may leave no files.
	Keep func(index int64, name string, file *os.File) error
	// Done takes each result, in the order of the items, from the slot's own goroutine; the result belongs to it.
	Done func(Done)
}

// Done is a finished item.
type Done struct {
	gpumux.Result
	// Busy is the time that the item took in the task process.
	Busy time.Duration
	// Peak is the most bytes that the process and its descendants needed while the item ran: device memory on a GPU, without what
	// frameworks' allocators keep unused, where they tell, and resident memory on the CPU. It is 0 where it was not measured, as for most items that take less than 20 ms; those of a micro-batch
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

// ErrGone ends a call whose process has ended before it.
var ErrGone = errors.New("the task process that the call needs has ended")

// ErrLapsed is in the cause of a context whose call must not go on, because its items may be running elsewhere: the process is
// killed without grace, and what it said no longer counts.
var ErrLapsed = errors.New("the time of the call is over")
