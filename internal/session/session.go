// Package session is the conversation with one task process, from its start to its end.
//
// It owns the wire and the board, the handshake, what is told and said, the memory as the
// watch sees it, and the evidence of a death. It never knows which items run. A Session
// stops when End or Kill returns: nothing of the process is left then.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/wire"
)

// Session is the conversation with one task process. One goroutine uses it; those started
// here only fill its channels.
type Session struct {
	Process *process.Process
	Task    launch.Task
	Memory  Memory
	// Heard has the messages of the process. It is closed when the wire ends.
	Heard chan wire.Message
	// Board is where it puts results; nil where it has none.
	Board *wire.Board

	o Options
	// shared is the board's memory, which is the process's too.
	shared []byte
	conn   *wire.Conn
	// ended is why the wire ended, once Heard is closed.
	ended error
	// raised is what the task raised when its process ended.
	raised string
	// started ends the process's turn to start.
	started func()
}

func (p *Session) disconnect() {
	p.conn.Close()
	if p.shared != nil {
		freeBoard(p.shared)
		p.shared, p.Board = nil, nil
	}
}

func (p *Session) start(run process.Command, exposure int) error {
	c, err := process.New(exposure, p.log())
	if err != nil {
		return err
	}
	run.Dir, run.Env, run.Cores = p.Task.Dir, p.Task.Environ(p.o.Home, p.o.Env), p.o.Cores
	if err := c.Start(run); err != nil {
		return err
	}
	p.Process = c
	p.follow()
	return nil
}

func (p *Session) follow() {
	p.Memory.watch(p.Process.PID, p.o, func() { p.Process.Signal(syscall.SIGKILL) })
	p.Process.Follow(p.Memory.Close)
}

func (p *Session) log() *zap.Logger { return p.o.Log.With(zap.String("slot", p.o.Name)) }

// listen reads messages until the wire ends. Those of a dead process still count: they
// are results. The slot drains Heard, so it never blocks for long.
func (p *Session) listen() {
	defer close(p.Heard)
	for {
		message, err := p.conn.Read()
		if err != nil {
			p.ended = err
			return
		}
		p.Heard <- message
	}
}

// maxUnread is how many messages may wait for a process to read. One that keeps to the
// protocol never has as many.
const maxUnread = 8

// Say tells the process a message without waiting; false: too many wait already.
func (p *Session) Say(message wire.Message) bool {
	return p.Unread() < maxUnread && p.conn.Send(message) == nil
}

// Unread is how many messages wait for it to read.
func (p *Session) Unread() int { return p.conn.Unread() }

// Greet does the handshake and waits until the task is loaded, or says why it is not.
func (p *Session) Greet(ctx context.Context) (ready wire.Ready, e *diagnosis.Evidence, traceback string) {
	defer p.started()
	hello := wire.Hello{
		Version: wire.Version, Task: p.Task.Name, Target: p.Task.Target(), OwnModule: p.Task.OwnModule, Dir: p.Task.Dir, Slot: p.o.Name,
		Device: p.o.Device, Memory: int64(p.o.Memory), Mode: p.o.Mode, Room: int64(p.o.Room),
	}
	if p.Board != nil {
		hello.Board = wire.BoardSize
	}
	p.Say(hello)
	limit := time.After(p.o.StartLimit)
	for spoke := false; ; {
		select {
		case message := <-p.Heard:
			switch m := message.(type) {
			case wire.ProcessHello:
				spoke = true
			case wire.Cap:
				p.Capped(m)
			case wire.Ready:
				// Output of the import belongs to no item.
				p.Process.Out.Rest()
				return m, nil, ""
			case wire.Fault:
				return ready, diagnosis.Raised(m.Raised), m.Raised.Traceback
			default:
				e := p.Death(message)
				if !spoke && e.Exited {
					e.Silent = p.Process.Program
				}
				return ready, e, ""
			}
		case <-limit:
			message := fmt.Sprintf("the task process was not ready after %s", p.o.StartLimit)
			e := &diagnosis.Evidence{TimedOut: true, Message: message, Tail: p.Process.Out.Tail()}
			return ready, e, p.Stacks()
		case <-ctx.Done():
			return ready, &diagnosis.Evidence{Canceled: true}, ""
		}
	}
}

// Capped takes in whether a framework's own limit works, when it first uses the device.
func (p *Session) Capped(limit wire.Cap) {
	if p.o.Capped != nil {
		p.o.Capped(p.Task.Name, limit)
	}
}

// Death waits for the end of a process whose wire ended, and says how it went. One that
// broke the wire but lives is killed, as is one whose message came out of turn.
func (p *Session) Death(outOfTurn wire.Message) *diagnosis.Evidence {
	e := &diagnosis.Evidence{}
	var protocol *wire.ProtocolError
	switch {
	case outOfTurn != nil:
		e.Protocol = "the task process said something out of turn"
	case errors.As(p.ended, &protocol) && !cutOff(p.ended):
		e.Protocol = protocol.Error()
	case p.Process.Leaves():
		e.Exited = true
	default:
		e.Protocol = diagnosis.ClosedWire
	}
	if !e.Exited {
		p.Process.Destroy()
	} else if status, ok := p.Process.Status.Sys().(syscall.WaitStatus); ok {
		e.ExitCode = status.ExitStatus()
		if status.Signaled() {
			e.Signal, e.CoreDumped = status.Signal(), status.CoreDump()
		}
	}
	e.Tail = p.Process.Out.Tail()
	return e
}

// Explain adds what the process leaves behind; kills is an earlier MemoryKills.
func (p *Session) Explain(e *diagnosis.Evidence, kills int) {
	e.Budget, e.Peak, e.Target = int64(p.Memory.Budget), p.Memory.Peak(), p.Task.Target()
	p.ExplainMemory(e, kills)
	if e.Tail == "" {
		e.Tail = p.Process.Out.Tail()
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
		e.OOMKills += max(0, process.MemoryKills()-kills)
	}
}

// End ends the process, at once or kindly, and returns when nothing of it is left. It
// reports whether the grace was too short, and what the task raised when it was left.
func (p *Session) End(kindly bool, grace time.Duration) (late bool, raised string) {
	if kindly && p.conn != nil {
		// Asked on the wire, it finishes its own way; a signal interrupts it.
		p.Say(wire.Stop{})
	} else {
		p.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.Process.Exited:
		if p.conn != nil {
			for message := range p.Heard { // it ends, since nothing of the process is left
				p.Leaving(message)
			}
		}
	case <-time.After(grace):
		late = true
	}
	p.Kill()
	return late, p.raised
}

// Leaving notes what the task raised when its process ended, which is of no run. It
// reports whether the message says so.
func (p *Session) Leaving(message wire.Message) bool {
	fault, ok := message.(wire.Fault)
	if ok = ok && fault.Run == 0; ok {
		line, _, _ := strings.Cut(fault.Raised.Message, "\n")
		p.raised = fault.Raised.Class + ": " + line
	}
	return ok
}

// Kill ends the process without asking, and the conversation.
func (p *Session) Kill() {
	p.Process.Kill()
	if p.conn == nil {
		return
	}
	p.disconnect()
	go func() {
		for range p.Heard {
		}
	}()
}

const (
	// stacksSignal makes the Python runtime print the stacks of all threads, which takes
	// stacksTime at most.
	stacksSignal = syscall.SIGUSR2
	stacksTime   = 300 * time.Millisecond
)

// Stacks returns the Python stacks of a process that hangs, or nothing where it writes
// none. Output before them counts as read.
func (p *Session) Stacks() string {
	if p.Task.Python == "" {
		return ""
	}
	p.Process.Out.Rest()
	select {
	case <-p.Process.Exited:
		return ""
	default:
		_ = syscall.Kill(p.Process.PID, stacksSignal) // not its children, which it would end
	}
	select {
	case <-p.Process.Exited:
	case <-time.After(stacksTime):
	}
	text := strings.TrimSpace(p.Process.Out.Rest())
	if text == "" {
		return ""
	}
	return "where it was when its time was over (Python's stacks):\n" + text
}

// cutOff reports whether the stream ended inside a frame: of a process that dies, not of
// one that breaks the protocol. It is reset if something was left to read.
func cutOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
