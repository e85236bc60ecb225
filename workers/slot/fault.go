package slot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// diagnose makes a fault of this slot from evidence.
func (s *Slot) diagnose(p *occupant, e *diagnosis.Evidence) *gpumux.Fault {
	p.Explain(e, s.kills)
	select {
	case <-p.Exited:
		if s.o.Device == "CPU" {
			e.Peak = max(e.Peak, process.MostResident(p.Status))
		}
	default:
	}
	return s.faultFrom(p, *e)
}

// faultFrom makes a fault of this slot from all the evidence.
func (s *Slot) faultFrom(p *occupant, e diagnosis.Evidence) *gpumux.Fault {
	e.Lent, e.OnCPU, e.MPS = p.Memory.Budget > s.o.Memory, s.o.Device == "CPU", s.o.MPS
	d := diagnosis.Diagnose(e)
	fault := d.Fault
	s.spread(d, &fault)
	s.locate(&fault, p.Task)
	fault.PID = p.PID
	if p.batch > 0 {
		fault.Batch = min(p.batch, p.sent-p.ran)
	}
	fault.Alone = p.ran == 0 && fault.Batch <= 1
	if s.flow != nil && fault.Batch <= 1 && !e.Loading {
		s.flow.blame(&fault)
	}
	if fault.Kind.Deadly() && fault.Tail == "" {
		fault.Tail = e.Tail
	}
	return &fault
}

// spread says who else may be to blame than the item.
func (s *Slot) spread(d diagnosis.Diagnosis, fault *gpumux.Fault) {
	fault.Blameless, fault.Wide = d.Blameless, d.MPSWide
	// A device that hangs lets every item run out of time.
	fault.Suspect = s.o.Device != "CPU" && (d.Device || fault.Kind == gpumux.DeviceLost || fault.Kind == gpumux.Timeout)
}

// locate says where a fault happened.
func (s *Slot) locate(fault *gpumux.Fault, task launch.Task) {
	fault.Op, fault.Task, fault.Slot, fault.Device, fault.Host = "run", task.Name, s.o.Name, s.o.Device, s.o.Host
}

// unanswered makes what did not answer before a start that start's fault; any other error stays.
func (s *Slot) unanswered(task launch.Task, err error) error {
	var hang *launch.HangError
	if errors.As(err, &hang) {
		return s.unstarted(task, err)
	}
	return err
}

// unstarted is the fault of a process that the system could not start.
func (s *Slot) unstarted(task launch.Task, err error) *gpumux.Fault {
	fault := &gpumux.Fault{Kind: gpumux.Crash, Message: err.Error()}
	s.locate(fault, task)
	fault.Op = "start"
	var program *process.ProgramError
	var hang *launch.HangError
	switch {
	case errors.As(err, &hang):
		fault.Blameless, fault.Hint = hang.Blameless, hang.Hint
	case process.Scarce(err):
		// It passes, and no item is to blame.
		fault.Blameless = true
		fault.Hint = "raise the limits on open files and processes of the worker, or use fewer slots"
		if errors.Is(err, syscall.ENOMEM) {
			fault.Kind = gpumux.HostOOM
		}
	case !errors.As(err, &program):
		fault.Hint = "the worker's machine did not allow it; change that, or run the worker on another"
	case errors.Is(err, exec.ErrNotFound):
		fault.Kind, fault.Hint = gpumux.BadInput, "install it, or name it with its full path in the task"
	case program.User != nil && errors.Is(err, os.ErrPermission):
		fault.Kind, fault.Hint = gpumux.BadInput, fmt.Sprintf("see that user %s may enter the task's folder and may execute the file",
			program.User.Name)
	default:
		fault.Kind, fault.Hint = gpumux.BadInput, "check that the file exists in the task's folder and may be executed"
	}
	return fault
}
