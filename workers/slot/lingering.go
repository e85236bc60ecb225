package slot

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// lingerLimit is how long a killed process may take to end before its call is told that it does not. Only one that hangs in the
// kernel, or that something outside of it holds, takes that long.
const lingerLimit = time.Minute

// lingers answers the call that is served, whose process was killed and does not end, and those that come meanwhile. None of the
// process's code runs any more, so its items can run elsewhere; the slot goes on waiting, since what the process holds is not free.
// The items are to blame only for what the process was killed for.
func (s *Slot) lingers() {
	p := s.process
	idle := &gpumux.Fault{Kind: gpumux.Crash, Blameless: true, Hint: process.LingerHint, Message: fmt.Sprintf(
		"the task process %d was killed and has not ended for %s: it hangs in the kernel, or something outside of it holds it", p.PID,
		p.Patience)}
	s.locate(idle, p.Task)
	idle.PID = p.PID
	f := idle
	if p.charge != nil {
		// Whose item hangs wherever it runs would take one slot after another out of service.
		charged := *p.charge
		charged.Message, charged.Hint = charged.Message+"; killed for it, the process has not ended", process.LingerHint
		f = &charged
	}
	if !s.lingering {
		s.log.Error("a killed task process does not end; its slot is out of service until it does", zap.String(logkey.Task, p.Task.Name),
			zap.Int(logkey.PID, p.PID), zap.String(logkey.Advice, process.LingerHint))
		s.mu.Lock()
		s.lingering = true
		s.mu.Unlock()
	}
	s.cut(f)
	for {
		select {
		case r := <-s.calls:
			r.reply <- idle
		default:
			return
		}
	}
}

// lingered puts the slot back into service, whose process has ended at last.
func (s *Slot) lingered() {
	if !s.lingering {
		return
	}
	s.mu.Lock()
	s.lingering = false
	s.mu.Unlock()
	s.log.Info("the task process that did not end is gone, and its slot is back in service")
}
