package slot

import (
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// Cap is what a framework's own limit came to when the framework began to use the device in a task process.
type Cap struct {
	Task, Framework string
	// Error says why the limit does not hold. Empty: it was tried and holds.
	Error string
	// Context is how many bytes the process and its descendants held on all devices of the slot, beside what the framework's
	// allocator had taken. 0: not measured.
	Context int64
	// Unseen says that the watch saw nothing of a process whose framework was at work on the device.
	Unseen bool
}

// capped takes in what a process says of a framework's limit. A process that waits does nothing meanwhile, so that what it holds
// can be told apart; false says that it does not read that it may go on.
func (p *session) capped(o Options, m wire.Cap) bool {
	c := Cap{Task: p.task.Name, Framework: m.Framework, Error: m.Error}
	if m.Wait {
		held := p.memory.Measure()
		c.Context, c.Unseen = max(0, held-m.Reserved), held == 0 && o.Watch != nil
	}
	if o.Capped != nil {
		o.Capped(c)
	}
	return !m.Wait || p.say(wire.Next{})
}
