package slot

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/gpumux/gpumux/workers/slot/wire"
)

// death waits for the process's end after its wire ended and says how it went. A process that broke the wire but lives is
// killed.
func (p *process) death(err error) *Evidence {
	e := &Evidence{}
	var protocol *wire.ProtocolError
	var version *wire.VersionError
	switch {
	case errors.As(err, &version):
		e.Protocol = version.Error()
	case errors.As(err, &protocol) && !cutOff(err):
		e.Protocol = protocol.Error()
	case err == nil:
		e.Protocol = "the task process said something out of turn"
	case p.leaves():
		e.Exited = true
	default:
		e.Protocol = closedWire
	}
	if !e.Exited {
		p.destroy()
	} else if status, ok := p.ended.Sys().(syscall.WaitStatus); ok {
		e.ExitCode = status.ExitStatus()
		if status.Signaled() {
			e.Signal, e.CoreDumped = status.Signal(), status.CoreDump()
		}
	}
	e.Tail = p.out.tail()
	return e
}

// closedWire is how a process breaks the protocol whose wire ends while it lives.
const closedWire = "the task process closed its wire and went on, which is not the task's own to close"

// wireLost is the exit status of the Python runtime without a wire; docs/wire.md lists them.
const wireLost = 64

// leaves says whether a process whose wire ended has ended or will. The kernel closes a dying process's files before the process
// can be waited for: on a busy machine long before.
func (p *process) leaves() bool {
	for {
		select {
		case <-p.exited:
			return true
		case <-time.After(time.Second):
			if lives(p.pid) {
				return false
			}
			strays(p.mark) // a descendant that holds it as a debugger does keeps it from being reaped
		}
	}
}

// cutOff says that the stream ended in the middle of a frame: of a process that dies, not of one that breaks the protocol.
// The system reports a reset instead of an end when the process had not read everything.
func cutOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

func raised(r wire.Raised) *Evidence {
	return &Evidence{Class: r.Class, Message: r.Message, Chain: r.Chain, Code: r.Code}
}

// end ends the process and returns when nothing of its group is left: at once, or after asking it to finish.
func (p *process) end(kindly bool, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if kindly && p.conn != nil {
		// Asked on the wire, it can finish its own way; told by a signal, it is in the middle of something.
		p.say(wire.Stop{})
		select {
		case <-p.exited:
		case <-timer.C:
		}
	} else {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-timer.C:
		}
	}
	p.kill()
}

// signal reaches the group of a process that has not ended; the number of one that has may be a stranger's by now.
func (p *process) signal(signal syscall.Signal) {
	select {
	case <-p.exited:
	default:
		killGroup(p.pid, signal)
	}
}

// destroyLimit is how long the end of a killed process is awaited before something is taken to hold it.
const destroyLimit = time.Second

// destroy kills the process and returns when it has ended. Who traces a process is told of its end before its parent is, and may
// be a descendant of its own that never looks; that one has to end first.
func (p *process) destroy() {
	p.signal(syscall.SIGKILL)
	held := time.NewTicker(destroyLimit)
	defer held.Stop()
	for {
		select {
		case <-p.exited:
			return
		case <-held.C:
			strays(p.mark)
		}
	}
}

// kill ends the process without asking.
func (p *process) kill() {
	p.destroy()
	p.out.close()
	p.memory.group.close()
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
