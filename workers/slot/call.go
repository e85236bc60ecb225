package slot

import (
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// order is a call with its task as this worker has it.
type order struct {
	calls.Call
	Task launch.Task
}

// mode is the call's, else the task's, else the slot's, else persistent. A command has no process to keep.
func (c order) mode(slot gpumux.Mode) gpumux.Mode {
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

func (c order) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return c.Task.Timeout
}

// lapsed is what Held says.
func (c order) lapsed() error {
	if c.Held == nil {
		return nil
	}
	return c.Held()
}

func (c order) attempts() int { return max(1, c.Attempts) }
