package slot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/text"
)

const (
	commandResult = 256 << 20
	// lastWords is how long a pipe is read on after a command's end: a descendant in another
	// cgroup or container may still hold it open.
	lastWords = time.Second
)

// command runs the program of a call once per item: the item on standard input, the
// result on standard output.
type command struct {
	job  *job
	call *call
}

func (c *command) serve(ctx context.Context) error {
	j := c.job
	for {
		j.judge.kills = process.MemoryKills()
		more, err := j.await(ctx)
		if err != nil || !more {
			return err
		}
		for _, one := range c.call.queue.take(nil, 1, 1, 1, 0) {
			one.Value = one.text()
			j.slot.runs(one.call.Map, one.Index, time.Now())
			done, err := c.try(ctx, one)
			if err != nil {
				return err
			}
			done.Index = one.Index
			j.slot.runs("", 0, time.Time{})
			one.call.done(done)
		}
	}
}

func (c *command) try(ctx context.Context, one item) (calls.Done, error) {
	for tries := 1; ; tries++ {
		done, err := c.run(ctx, one)
		if err != nil {
			return done, err
		}
		// The program may have read its files at any time until now.
		if err := c.checkEdition(ctx); err != nil {
			return done, err
		}
		fault, retryOn := done.Fault, one.call.RetryOn
		if fault == nil {
			return done, nil
		}
		fault.Final = len(retryOn) > 0 && !slices.Contains(retryOn, strings.TrimPrefix(fault.Exit, "exit status "))
		if fault.Final || tries >= one.call.Attempts {
			fault.Attempts, fault.Item = tries, text.Excerpt(one.Value)
			return done, nil
		}
	}
}

// checkEdition refuses a program that does not have the edition of the call.
func (c *command) checkEdition(ctx context.Context) error {
	now, err := c.job.callEdition(ctx)
	if err != nil {
		return err
	}
	c.job.want.Edition = now
	return c.call.Work.Meet(calls.Process{Edition: now})
}

// run runs the program for one item. An exit status other than 0 is the item's fault. An
// error ends the call: the program died by a signal, or its time or the call was over.
func (c *command) run(ctx context.Context, one item) (none calls.Done, err error) {
	j, task := c.job, c.job.task
	began := time.Now()
	argv, err := task.CommandArgv(one.Value)
	if err != nil {
		fault := &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: err.Error()}
		j.judge.locate(fault, task)
		return calls.Done{Result: gpumux.Result{Fault: fault}}, nil
	}
	p, in, out, err := c.start(ctx, argv)
	if err != nil {
		return none, err
	}
	defer out.Close()
	defer in.Close()
	j.slot.enter(Busy, "item of "+task.Name)
	p.session.Memory.Busy(true)
	value := make(chan []byte, 1)
	go func() {
		defer in.Close()
		in.Write(append(bytes.Clone(one.Value), '\n'))
	}()
	go func() {
		printed, _ := io.ReadAll(io.LimitReader(out, commandResult+1))
		value <- printed
		io.Copy(io.Discard, out)
	}()
	status, err := c.await(ctx, p, &one)
	if err != nil {
		return none, err
	}
	j.slot.tally(func(st *Stats) { st.Items++ })
	done := calls.Done{Busy: time.Since(began), Peak: p.session.Memory.Peak(), Budget: int64(p.session.Memory.Budget)}
	if j.owner.o.Device == "CPU" {
		done.Peak = max(done.Peak, process.MostResident(p.session.Process.Status))
	}
	out.SetReadDeadline(time.Now().Add(lastWords))
	printed := bytes.TrimRight(<-value, "\r\n") // as a shell does
	done.Printed = p.session.Process.Out.Rest()
	fault := c.exitFault(p, status.ExitStatus(), printed, done.Printed)
	j.owner.retire(false, "command ended")
	switch {
	case fault == nil && task.Text:
		done.Value, _ = text.Marshal(string(printed)) // a string always encodes
	case fault == nil:
		done.Value = bytes.TrimSpace(printed)
	case fault.Kind.Deadly():
		fault.Item = text.Excerpt(one.Value)
		return none, fault
	default:
		done.Fault = fault
	}
	return done, nil
}

func (c *command) start(ctx context.Context, argv []string) (p *occupant, in, out *os.File, err error) {
	j, task := c.job, c.job.task
	j.owner.retire(true, "another task")
	j.slot.starts(task.Name, "item of "+task.Name)
	if err = c.checkEdition(ctx); err != nil {
		j.owner.unstart()
		return nil, nil, nil, err
	}
	stdin, in, err := os.Pipe()
	if err == nil {
		defer stdin.Close()
		var stdout *os.File
		if out, stdout, err = os.Pipe(); err == nil {
			defer stdout.Close()
			var started *session.Session
			if started, err = session.StartCommand(task, j.o, argv, stdin, stdout); err == nil {
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
		j.owner.unstart()
		return nil, nil, nil, j.judge.unstarted(task, err)
	}
	j.owner.occupy(p)
	return p, in, out, nil
}

// await waits until the program has ended by itself. On an error it is gone.
func (c *command) await(ctx context.Context, p *occupant, one *item) (status syscall.WaitStatus, err error) {
	j, ps := c.job, p.session.Process
	var late <-chan time.Time
	if timeout := one.call.Timeout; timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	var death *diagnosis.Evidence
	for ended := false; !ended && death == nil; {
		select {
		case <-ps.Exited:
			ended, status = true, ps.Status.Sys().(syscall.WaitStatus)
			if status.Signaled() {
				death = &diagnosis.Evidence{Exited: true, Signal: status.Signal(), CoreDumped: status.CoreDump(), Tail: ps.Out.Tail()}
			}
		case <-late:
			death = overTime(one.call.Timeout)
		case <-j.slot.doom:
			if why := j.slot.doomedNow(); why != "" {
				death = &diagnosis.Evidence{Recycled: why}
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
			j.owner.abandon(err, "call ended: "+err.Error())
			return status, err
		}
	}
	if one.call.lapsed() {
		j.owner.kill("the call's time was over")
		return status, one.call.err
	}
	if death == nil {
		return status, nil
	}
	fault := j.judge.diagnose(p, &deathError{evidence: death})
	fault.Item, fault.Alone = text.Excerpt(one.Value), true
	one.call.fail(*fault)
	j.owner.fail(fault)
	return status, fault
}

func (c *command) exitFault(p *occupant, exit int, printed []byte, output string) *gpumux.Fault {
	task, fault := p.session.Task, &gpumux.Fault{Kind: gpumux.FaultTaskError, Tail: output}
	switch {
	case exit != 0:
		e := diagnosis.Evidence{Command: true, Exited: true, ExitCode: exit, Tail: output, Budget: int64(p.session.Memory.Budget)}
		p.session.ExplainMemory(&e, c.job.judge.kills)
		d := diagnosis.Diagnose(e)
		d.Fault.Tail = output
		fault = &d.Fault
		c.job.judge.spread(d, fault)
	case len(printed) > commandResult:
		fault.Message = fmt.Sprintf("%s printed more than %s to standard output", task.Command[0], gpumux.Size(commandResult))
		fault.Hint = "write large results to a file and print its path"
	case task.Text && utf8.Valid(printed), !task.Text && text.Valid(printed):
		return nil
	case task.Text:
		fault.Message = fmt.Sprintf("%s printed bytes that are not UTF-8 text to standard output: %.120q", task.Command[0], printed)
		fault.Hint = "pipe them through base64, or write a file and print its path"
	default:
		fault.Message = fmt.Sprintf("%s printed no JSON value to standard output: %.120q", task.Command[0], printed)
		fault.Hint = "print one JSON value, or take what it prints as text (--output text, or output: text in the worker's file)"
	}
	c.job.judge.locate(fault, task)
	fault.PID, fault.Alone = p.session.Process.PID, true
	return fault
}
