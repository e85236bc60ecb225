package slot

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/internal/wire"
)

// deathError ends a process in the middle of an item, or says how it ended.
type deathError struct {
	evidence *diagnosis.Evidence
	trace    string
}

func (e *deathError) Error() string { return "the task process cannot go on" }

func broken(format string, args ...any) error {
	return &deathError{evidence: &diagnosis.Evidence{Protocol: fmt.Sprintf(format, args...)}}
}

// lostError says that the process is of no use between two items. No item is to blame.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }

type judge struct {
	o Options
	// kills is the counter of memory kills around the worker as the call began.
	kills int
}

func (j *judge) diagnose(p *occupant, d *deathError) *gpumux.Fault {
	p.session.Explain(d.evidence, j.kills)
	if p.exited() && j.o.Device == "CPU" {
		d.evidence.Peak = max(d.evidence.Peak, process.MostResident(p.session.Process.Status))
	}
	fault := j.fault(p, *d.evidence)
	fault.Traceback = d.trace
	return fault
}

func (j *judge) fault(p *occupant, e diagnosis.Evidence) *gpumux.Fault {
	e.Lent, e.OnCPU, e.MPS = p.session.Memory.Budget > j.o.Memory, j.o.Device == "CPU", j.o.MPS
	e.Batch, e.Concurrent = p.account.batch, p.account.concurrent
	d := diagnosis.Diagnose(e)
	fault := d.Fault
	j.spread(d, &fault)
	j.locate(&fault, p.session.Task)
	fault.PID = p.session.Process.PID
	fault.Batch = p.account.inBatch()
	if fault.Kind.Deadly() && fault.Tail == "" {
		fault.Tail = e.Tail
	}
	return &fault
}

func (j *judge) raised(p *occupant, m wire.Fault, running *item) (fault *gpumux.Fault, output string, err error) {
	e := diagnosis.Raised(m.Raised)
	e.Item = running.outline()
	output = p.session.Process.Out.UpTo(m.Out)
	e.Tail, e.OnCPU, e.Batch, e.Concurrent = output, j.o.Device == "CPU", p.account.batch, p.account.concurrent
	p.session.ExplainMemory(e, j.kills)
	d := diagnosis.Diagnose(*e)
	if d.Poisoned || d.Fault.Kind.Deadly() {
		return nil, output, &deathError{e, m.Raised.Traceback}
	}
	if m.Late && d.Fault.Kind == gpumux.FaultTaskError {
		d = diagnosis.Diagnose(*overTime(running.call.Timeout))
	}
	fault = &d.Fault
	j.locate(fault, p.session.Task)
	fault.Traceback, fault.PID, fault.Attempts = m.Raised.Traceback, p.session.Process.PID, running.tries+max(1, m.Attempts)
	fault.Final = m.Final
	fault.Item = text.Excerpt(e.Item)
	return fault, output, nil
}

func overTime(limit time.Duration) *diagnosis.Evidence {
	return &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", limit)}
}

// spread notes in a fault whether something other than the item may be to blame.
func (j *judge) spread(d diagnosis.Diagnosis, fault *gpumux.Fault) {
	fault.Blameless, fault.Wide = d.Blameless, d.MPSWide
	// A device that hangs lets every item run out of time.
	fault.Suspect = j.o.Device != "CPU" && (d.Device || fault.Kind == gpumux.FaultDeviceLost || fault.Kind == gpumux.FaultTimeout)
}

func (j *judge) locate(fault *gpumux.Fault, task launch.Task) {
	fault.Op, fault.Task, fault.Slot, fault.Device, fault.Host = "run", task.Name, j.o.Name, j.o.Device, j.o.Host
}

func (j *judge) start(task launch.Task, fault gpumux.Fault) *gpumux.Fault {
	j.locate(&fault, task)
	fault.Op = "start"
	return &fault
}

// unanswered turns the error of files that do not answer into the fault of a start. It
// returns others as they are.
func (j *judge) unanswered(task launch.Task, err error) error {
	if errors.As(err, new(*launch.HangError)) {
		return j.unstarted(task, err)
	}
	return err
}

func (j *judge) unstarted(task launch.Task, err error) *gpumux.Fault {
	fault := j.start(task, gpumux.Fault{Kind: gpumux.FaultCrash, Message: err.Error()})
	var program *process.ProgramError
	var hang *launch.HangError
	switch {
	case errors.As(err, &hang):
		fault.Blameless, fault.Hint = true, hang.Hint()
	case process.Scarce(err):
		// Scarcity passes, and no item is to blame for it.
		fault.Blameless = true
		fault.Hint = "raise the limits on open files and processes of the worker, or use fewer slots"
		if errors.Is(err, syscall.ENOMEM) {
			fault.Kind = gpumux.FaultHostOOM
		}
	case !errors.As(err, &program):
		fault.Hint = "the worker's machine did not allow it; change that, or run the worker on another"
	case errors.Is(err, exec.ErrNotFound):
		fault.Kind, fault.Hint = gpumux.FaultBadInput, "install it, or name it with its full path in the task"
	default:
		fault.Kind, fault.Hint = gpumux.FaultBadInput, "check that the file exists in the task's folder, that the worker's user may enter that and execute it, and of a script "+
			"that its first line is #! with a program that exists, without a line end of Windows"
	}
	return fault
}

// outdated is the fault of a call that wants another edition than the files have. A call
// that wants none gets it when every import changes the code.
func (j *judge) outdated(task launch.Task, want, have string) *gpumux.Fault {
	message := fmt.Sprintf("the code of task %s changes at each start of a process, at last to edition %s", task.Name, have)
	hint := "let the import change no code"
	if want != "" {
		message = fmt.Sprintf("the map began with edition %s of the code of task %s, and this worker has edition %s",
			want, task.Name, have)
		hint = "put the files back as they were and start it again, or start a new map, which runs with the new code; " +
			"a map with --option edition=any takes new code as it comes"
	}
	path, changed := task.Code().Newest()
	message += text.When(path != "", "; %s changed last, at %s", path, changed.UTC().Format(time.RFC3339))
	return j.start(task, gpumux.Fault{Kind: gpumux.FaultBadInput, Edition: have, Message: message, Hint: hint})
}
