package session

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// Greet does the handshake and waits until the task is loaded. The traceback goes with an exception of the task's module.
func (p *Session) Greet(ctx context.Context) (ready wire.Ready, e *diagnosis.Evidence, traceback string) {
	hello := wire.Hello{
		Version: wire.Version, Task: p.Task.Name, Target: p.Task.Target(), Own: p.Task.Own, Dir: p.Task.Dir, Slot: p.o.Slot,
		Device: p.o.Device, Memory: int64(p.o.Memory), Mode: p.o.Mode, Room: int64(p.o.Room),
		Lease: p.o.Lease, Host: p.o.Host, Rebuilt: p.o.Rebuilt,
	}
	if p.Board != nil {
		hello.Board = wire.BoardSize
	}
	p.Say(hello)
	limit := time.NewTimer(p.o.StartLimit)
	defer limit.Stop()
	for spoke := false; ; {
		select {
		case h := <-p.Heard:
			switch m := h.Message.(type) {
			case wire.ProcessHello:
				spoke = true
			case wire.Cap:
				if !p.Capped(m) {
					return ready, &diagnosis.Evidence{Protocol: diagnosis.Deaf}, ""
				}
			case wire.Ready:
				// What the import printed belongs to no item.
				p.Out.Rest()
				return m, nil, ""
			case wire.Fault:
				return ready, diagnosis.Raised(m.Raised), m.Raised.Traceback
			default:
				e := p.Death(h.Err)
				if !spoke && e.Exited {
					e.Silent = p.Program
				}
				return ready, e, ""
			}
		case <-limit.C:
			message := fmt.Sprintf("the task process was not ready after %s", p.o.StartLimit)
			return ready, &diagnosis.Evidence{TimedOut: true, Message: message}, ""
		case <-ctx.Done():
			return ready, &diagnosis.Evidence{Canceled: true}, ""
		}
	}
}

// trimLimit is how long a trim may take before its process is taken for stuck.
const trimLimit = time.Minute

// Trimmed is what a trim gave: what the process held before and after, and the seconds that it took.
type Trimmed struct {
	Before, After hygiene.Holding
	Busy          float64
}

// Trim lets the process give back memory and waits for it. No item runs meanwhile. An error says that the process is of no use any
// more, or why ctx ended.
func (p *Session) Trim(ctx context.Context) (Trimmed, error) {
	before := p.Memory.reread()
	limit := time.NewTimer(trimLimit)
	defer limit.Stop()
	if !p.Say(wire.Trim{}) {
		return Trimmed{}, fmt.Errorf("it did not read what it was told before it was to trim")
	}
	for {
		select {
		case h := <-p.Heard:
			switch m := h.Message.(type) {
			case wire.ProgressReport, wire.Posted, wire.Kept:
			case wire.Cap:
				if !p.Capped(m) {
					return Trimmed{}, fmt.Errorf("it asked for more than it read while it trimmed")
				}
			case wire.Trimmed:
				p.Memory.Told(m.Allocators)
				return Trimmed{before, p.Memory.reread(), m.Busy}, nil
			default:
				if h.Err == nil {
					return Trimmed{}, fmt.Errorf("a message out of turn while it trimmed: %T", h.Message)
				}
				return Trimmed{}, fmt.Errorf("ended while it trimmed")
			}
		case <-limit.C:
			return Trimmed{}, fmt.Errorf("a trim took longer than %s", trimLimit)
		case <-ctx.Done():
			return Trimmed{}, context.Cause(ctx)
		}
	}
}

// Cap is what a framework's own limit came to when the framework began to use the device in a task process, and what was measured then
// and later.
type Cap struct {
	Task, Framework string
	// Error says why the limit does not hold. Empty: it was tried and holds.
	Error string
	// Context is how many bytes the process held on all devices of the slot beside what the frameworks' allocators had taken. Its
	// descendants have allocators of their own. 0: not measured.
	Context int64
	// Unseen says that the watch saw nothing of a process whose framework was at work on the device.
	Unseen bool
}

// Capped takes in what the process says of a framework's limit. A process that waits does nothing meanwhile, so that what it holds
// can be told apart; false says that it does not read that it may go on.
func (p *Session) Capped(m wire.Cap) bool {
	c := Cap{Task: p.Task.Name, Framework: m.Framework, Error: m.Error}
	if m.Wait {
		own := p.Memory.Own()
		c.Context, c.Unseen = max(0, own-m.Reserved), own == 0 && p.o.Watch != nil
	}
	if p.o.Capped != nil {
		p.o.Capped(c)
	}
	return !m.Wait || p.Say(wire.Next{})
}
