package session

import (
	"strings"
	"syscall"
	"time"
)

const (
	// stacksSignal is what the Python runtime answers with the stacks of all threads, however its task hangs.
	stacksSignal = syscall.SIGUSR2
	// stacksLimit is how long that may take, stacksCalm how long nothing more comes when it is done.
	stacksLimit = 500 * time.Millisecond
	stacksCalm  = 50 * time.Millisecond
)

// Stacks are the Python stacks of a process that hangs, or nothing where it does not write them. What it printed until then is read.
func (p *Session) Stacks() string {
	if p.Task.Python == "" {
		return ""
	}
	begin := p.Out.Size()
	select {
	case <-p.Exited:
		return ""
	default:
		_ = syscall.Kill(p.PID, stacksSignal)
	}
	tick := time.NewTicker(stacksCalm / 10)
	defer tick.Stop()
	over := time.NewTimer(stacksLimit)
	defer over.Stop()
	size, grew := begin, time.Now()
	for waits := true; waits; {
		select {
		case <-p.Exited:
			waits = false
		case <-over.C:
			waits = false
		case now := <-tick.C:
			if n := p.Out.Size(); n != size {
				size, grew = n, now
			} else if size > begin && now.Sub(grew) > stacksCalm {
				waits = false
			}
		}
	}
	text := strings.TrimSpace(p.Out.From(begin))
	p.Out.Rest()
	if text == "" {
		return ""
	}
	return "where it was when its time was over (Python's stacks):\n" + text
}
