package slot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/session"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// commandResult is the most bytes that a command may print as its result.
const commandResult = 256 << 20

// serveCommand runs a command once per item: the item on standard input, the result on standard output.
func (s *Slot) serveCommand(ctx context.Context, f *flow) error {
	for {
		s.kills = process.MemoryKills()
		more, err := s.await(ctx, f)
		if err != nil || !more {
			return err
		}
		item := f.pop()
		s.runs(item.Index, time.Now())
		var done calls.Done
		for item.tries = 1; ; item.tries++ {
			if done, err = s.command(ctx, f, item.Item); err != nil {
				var fault *gpumux.Fault
				if errors.As(err, &fault) && fault.Op == "run" {
					fault.OfItem(item.Value)
				}
				return err
			}
			// Nobody knows when it read which of its files.
			if err := s.useEdition(ctx, f); err != nil {
				return err
			}
			if done.Fault == nil || item.tries >= f.call.attempts() {
				break
			}
		}
		if done.Fault != nil {
			done.Fault.Attempts = item.tries
			done.Fault.OfItem(item.Value)
		}
		done.Index = item.Index
		s.runs(0, time.Time{})
		f.call.Done(done)
	}
}

// command runs the program for one item. An error is a death that is not the program's own word: a signal, the timeout, the
// end of the call; an exit status is.
func (s *Slot) command(ctx context.Context, f *flow, item gpumux.Item) (calls.Done, error) {
	var none calls.Done
	began, task := time.Now(), f.call.Task
	argv, err := task.CommandArgv(item.Value)
	if err != nil {
		fault := &gpumux.Fault{Kind: gpumux.TaskError, Message: err.Error()}
		s.locate(fault, task)
		return calls.Done{Result: gpumux.Result{Fault: fault}}, nil
	}
	p, in, out, err := s.startCommand(ctx, f, argv)
	if err != nil {
		return none, err
	}
	defer out.Close()
	defer in.Close()
	s.enter(Busy, "item of "+task.Name)
	p.Memory.Busy(true)
	value := make(chan []byte, 1)
	go func() {
		defer in.Close()
		in.Write(append(bytes.Clone(item.Value), '\n'))
	}()
	go func() {
		value <- collect(out)
		io.Copy(io.Discard, out)
	}()
	status, err := s.awaitCommand(ctx, p, f.call)
	if err != nil {
		return none, err
	}
	s.tally(func(st *Stats) { st.Items++ })
	done := calls.Done{Busy: time.Since(began), Peak: p.Memory.Peak(), Budget: int64(p.Memory.Budget)}
	if s.o.Device == "CPU" {
		done.Peak = max(done.Peak, process.MostResident(p.Status))
	}
	// All that it printed is in the pipe, whose end may be somebody's who has not ended.
	out.SetReadDeadline(time.Now())
	printed := bytes.TrimSpace(<-value)
	done.Output = p.Out.Rest()
	fault := s.exitFault(p, status.ExitStatus(), printed, done.Output)
	s.retire(false, "command ended")
	switch {
	case fault == nil && task.Text:
		done.Value = quoted(printed)
	case fault == nil:
		done.Value = printed
	case fault.Kind.Deadly():
		return none, fault
	default:
		done.Fault = fault
	}
	return done, nil
}

// awaitCommand waits until the program has ended by itself. On an error it is gone.
func (s *Slot) awaitCommand(ctx context.Context, p *occupant, call order) (status syscall.WaitStatus, err error) {
	var late <-chan time.Time
	if timeout := call.timeout(); timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	var death *diagnosis.Evidence
	for ended := false; !ended && death == nil; {
		select {
		case <-p.Exited:
			ended, status = true, p.Status.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				death = &diagnosis.Evidence{Exited: true, Signal: status.Signal(), CoreDumped: status.CoreDump(), Tail: p.Out.Tail()}
			}
		case <-late:
			death = &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", call.timeout())}
		case <-s.doom:
			if why := s.doomedNow(); why != "" {
				death = &diagnosis.Evidence{Recycled: why}
			}
		case <-ctx.Done():
			s.abandon(ctx, "call ended: "+context.Cause(ctx).Error())
			return status, context.Cause(ctx)
		}
	}
	if err := s.endLapsed(call); err != nil {
		return status, err
	}
	if death != nil {
		return status, s.fail(p, death, "")
	}
	return status, nil
}

// quoted is text as a JSON string.
func quoted(text []byte) json.RawMessage {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	_ = to.Encode(string(text)) // a string always encodes
	return bytes.TrimSpace(b.Bytes())
}

// collect reads what a command prints: until nobody can print any more, or what is in the pipe when its deadline has passed.
func collect(out *os.File) []byte {
	limited := &io.LimitedReader{R: out, N: commandResult + 1}
	printed, err := io.ReadAll(limited)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		out.SetReadDeadline(time.Time{})
		limited.R = present{out}
		rest, _ := io.ReadAll(limited)
		printed = append(printed, rest...)
	}
	return printed
}

// present reads what is in a pipe and ends where it would have to wait.
type present struct{ pipe *os.File }

func (p present) Read(b []byte) (n int, err error) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), b)
		return true
	})
	if err == nil && n <= 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

// exitFault is the fault of a command that ended by itself, or nil.
func (s *Slot) exitFault(p *occupant, exit int, printed []byte, output string) *gpumux.Fault {
	task, fault := p.Task, &gpumux.Fault{Kind: gpumux.TaskError, Tail: output}
	switch {
	case exit != 0:
		e := diagnosis.Evidence{Command: true, Exited: true, ExitCode: exit, Tail: output, Budget: int64(p.Memory.Budget)}
		p.ExplainMemory(&e, s.kills)
		d := diagnosis.Diagnose(e)
		d.Fault.Tail = output
		fault = &d.Fault
		s.spread(d, fault)
	case len(printed) > commandResult:
		fault.Message = fmt.Sprintf("%s printed more than %s to standard output", task.Command[0], gpumux.Size(commandResult))
		fault.Hint = "write large results to a file and print its path"
	case task.Text:
		return nil
	default:
		err := wire.Check(printed)
		if err == nil {
			return nil
		}
		fault.Message = fmt.Sprintf("%s printed no JSON value to standard output (%v): %.120q", task.Command[0], err, printed)
		fault.Hint = "print one JSON value, or set the task's output to text"
	}
	s.locate(fault, task)
	fault.PID, fault.Alone = p.PID, true
	return fault
}

// startCommand starts a command, in these words, with pipes for its standard input and output.
func (s *Slot) startCommand(ctx context.Context, f *flow, argv []string) (p *occupant, in, out *os.File, err error) {
	task, o := f.call.Task, s.granted(f.call)
	s.retire(true, "another task")
	if s.lingering {
		return nil, nil, nil, errCut
	}
	s.enter(Starting, "item of "+task.Name)
	if err = s.unanswered(task, task.Reach(ctx, o.StartLimit)); err == nil {
		err = s.useEdition(ctx, f)
	}
	if err != nil {
		s.unstart()
		return nil, nil, nil, err
	}
	stdin, in, err := os.Pipe()
	if err == nil {
		defer stdin.Close()
		var stdout *os.File
		if out, stdout, err = os.Pipe(); err == nil {
			defer stdout.Close()
			var started *session.Session
			if started, err = session.StartCommand(task, o, argv, stdin, stdout); err == nil {
				p = newOccupant(started, 1)
			}
		}
	}
	if err != nil {
		for _, file := range []*os.File{in, out} {
			if file != nil {
				file.Close()
			}
		}
		s.unstart()
		return nil, nil, nil, s.unstarted(task, err)
	}
	s.occupy(p)
	return p, in, out, nil
}
