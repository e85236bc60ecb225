package session

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// Death waits for the process's end after its wire ended and says how it went. A process that broke the wire but lives is
// killed.
func (p *Session) Death(err error) *diagnosis.Evidence {
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

// Explain adds what the process leaves behind to the evidence; kills is process.MemoryKills of a time before.
func (p *Session) Explain(e *diagnosis.Evidence, kills int) {
	e.Budget, e.Peak, e.Target = int64(p.Memory.Budget), p.Memory.Peak(), p.Task.Target()
	p.ExplainMemory(e, kills)
	if e.Tail == "" {
		e.Tail = p.Out.Tail()
	}
}

// ExplainMemory adds what is known of the process's memory to the evidence.
func (p *Session) ExplainMemory(e *diagnosis.Evidence, kills int) {
	switch over := p.Memory.Over(); {
	case over.Foreign != "":
		e.Foreign, e.ForeignHeld, e.Device = over.Foreign, over.Held, p.o.Device
	case over.Held > 0:
		e.HostLeft = over.Left
		e.OverBudget, e.Peak = e.HostLeft == 0, max(over.Held, e.Peak)
	default:
		killed(e, p.Kills(), process.MemoryKills()-kills)
	}
}

// killed adds to the evidence what the kernel killed, in the process's own cgroup and elsewhere in the worker's.
func killed(e *diagnosis.Evidence, own process.Kills, others int) {
	if own.Number > 0 {
		// The limit of the process's own cgroup is its budget. Killed for another one's, it may have kept to it.
		e.OOMKills += own.Number
		e.OverBudget, e.Peak = e.Exited && own.Own, max(own.Peak, e.Peak)
		return
	}
	e.OOMKills += max(0, others)
}

// End ends the process and returns when nothing of its group is left: at once, or after asking it to finish.
func (p *Session) End(kindly bool, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if kindly && p.conn != nil {
		// Asked on the wire, it can finish its own way; told by a signal, it is in the middle of something.
		p.Say(wire.Stop{})
	} else {
		if p.conn == nil {
			p.Announce() // a command may die of it in the middle of a kernel
		}
		p.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.Exited:
	case <-timer.C:
	}
	p.Kill()
}

// Kill ends the process without asking, and the conversation.
func (p *Session) Kill() {
	p.Process.Kill()
	if p.conn == nil {
		return
	}
	close(p.send)
	p.disconnect()
	go func() {
		for range p.Heard {
		}
	}()
}
