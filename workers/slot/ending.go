package slot

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// death waits for the process's end after its wire ended and says how it went. A process that broke the wire but lives is
// killed.
func (p *session) death(err error) *diagnosis.Evidence {
	e := &diagnosis.Evidence{}
	var protocol *wire.ProtocolError
	var version *wire.VersionError
	switch {
	case errors.As(err, &version):
		e.Protocol = version.Error()
	case errors.As(err, &protocol) && !cutOff(err):
		e.Protocol = protocol.Error()
	case err == nil:
		e.Protocol = "the task process said something out of turn"
	case p.Leaves():
		e.Exited = true
	default:
		e.Protocol = diagnosis.ClosedWire
	}
	if !e.Exited {
		p.Destroy()
	} else if status, ok := p.Status.Sys().(syscall.WaitStatus); ok {
		e.ExitCode = status.ExitStatus()
		if status.Signaled() {
			e.Signal, e.CoreDumped = status.Signal(), status.CoreDump()
		}
	}
	e.Tail = p.Out.Tail()
	return e
}

// cutOff reports whether the stream ended in the middle of a frame: of a process that dies, not of one that breaks the protocol.
// The system reports a reset instead of an end when the process had not read everything.
func cutOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

func raised(r wire.Raised) *diagnosis.Evidence {
	return &diagnosis.Evidence{Class: r.Class, Message: r.Message, Chain: r.Chain, Code: r.Code}
}

// end ends the process and returns when nothing of its group is left: at once, or after asking it to finish.
func (p *session) end(kindly bool, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if kindly && p.conn != nil {
		// Asked on the wire, it can finish its own way; told by a signal, it is in the middle of something.
		p.say(wire.Stop{})
		select {
		case <-p.Exited:
		case <-timer.C:
		}
	} else {
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Exited:
		case <-timer.C:
		}
	}
	p.kill()
}

// lingerLimit is how long a killed process may take to end before its call is told that it does not. Only one that hangs in the
// kernel, or that something outside of it holds, takes that long.
const lingerLimit = time.Minute

// lingers answers the call that is served, whose process was killed and does not end, and those that come meanwhile. None of the
// process's code runs any more, so its items can run elsewhere; the slot goes on waiting, since what the process holds is not free.
// The items are to blame only for what the process was killed for.
func (s *Slot) lingers() {
	p := s.process
	idle := &gpumux.Fault{Kind: gpumux.Crash, Blameless: true, Hint: lingerHint, Message: fmt.Sprintf(
		"the task process %d was killed and has not ended for %s: it hangs in the kernel, or something outside of it holds it", p.PID,
		p.Patience)}
	s.place(idle, p.task)
	idle.PID = p.PID
	f := idle
	if p.charge != nil {
		// Whose item hangs wherever it runs would take one slot after another out of service.
		charged := *p.charge
		charged.Message, charged.Hint = charged.Message+"; killed for it, the process has not ended", lingerHint
		f = &charged
	}
	if !s.lingering {
		s.log.Error("a killed task process does not end; its slot is out of service until it does", logTask.text(p.task.Name),
			logPID.int(p.PID), logAdvice.text(lingerHint))
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

// lingerHint is the next step.
const lingerHint = "look at the process's state, /proc/PID/stack and the kernel's log (dmesg) for a driver or a file system that " +
	"hangs, and end a debugger that holds it; the slot goes on by itself when the process is gone, else reboot the host"

// kill ends the process without asking.
func (p *session) kill() {
	p.Process.Kill()
	if p.conn == nil {
		return
	}
	close(p.send)
	p.disconnect()
	go func() {
		for range p.heard {
		}
	}()
}
