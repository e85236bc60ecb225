package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/workers/edition"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// unsteady is how often the code of a task may change while a process imports it before the call is given up.
const unsteady = 3

// current is the edition of the task's code as its files are now. An error is the fault of a start, or why the call ended.
func (s *Slot) current(ctx context.Context, task launch.Task, modules []string) (string, error) {
	now, err := task.Edition(ctx, s.o.StartLimit, modules)
	return now, s.unanswered(task, err)
}

// ready returns a process that may run an item of the call: the present one where it suits, else a new one. Its code has the
// edition that the call is for, and the files still have it, so that what the process imports later is of it, too.
func (s *Slot) ready(ctx context.Context, f *flow) (*occupant, error) {
	if p, err := s.leased(f.call); p != nil || err != nil {
		return p, err
	}
	for range unsteady {
		var modules []string
		if s.process != nil && f.call.Task.Same(s.process.Task) {
			modules = s.process.modules
		}
		now, err := s.current(ctx, f.call.Task, modules)
		if err != nil {
			return nil, err
		}
		if !edition.Serves(edition.Shown(f.call.Edition), now) {
			return nil, s.outdated(f.call, now, modules)
		}
		p, err := s.suitable(ctx, f.call, now)
		if err != nil {
			return nil, err
		}
		if edition.Shown(p.edition) != edition.Shown(now) {
			s.retire(true, "its code changed while it was imported")
			continue
		}
		if !edition.Serves(f.call.Edition, p.edition) {
			return nil, s.outdated(f.call, p.edition, p.modules)
		}
		f.use(p.edition)
		return p, nil
	}
	now, err := s.current(ctx, f.call.Task, nil)
	if err != nil {
		return nil, err
	}
	return nil, s.outdated(f.call, now, nil)
}

// leased returns the process of the call's lease, if there is one. It runs the code that it has loaded.
func (s *Slot) leased(call order) (*occupant, error) {
	p := s.process
	if call.Lease == "" {
		return nil, nil
	}
	if p == nil || p.lease != call.Lease || exited(p) {
		if call.Process != 0 {
			return nil, calls.ErrGone
		}
		return nil, nil
	}
	if !call.Task.Joins(p.Task) {
		fault := &gpumux.Fault{
			Kind:    gpumux.BadInput,
			Message: fmt.Sprintf("the process of the lease runs task %s, and task %s needs another process", p.Task.Name, call.Task.Name),
			Hint:    "in one lease call tasks of the same folder, interpreter, environment and user, or use a lease for each",
		}
		s.locate(fault, call.Task)
		fault.Op = "start"
		return nil, fault
	}
	p.Task = call.Task
	return p, nil
}

func exited(p *occupant) bool {
	select {
	case <-p.Exited:
		return true
	default:
		return false
	}
}

// useEdition asks for the edition before a command starts, which has to be the call's.
func (s *Slot) useEdition(ctx context.Context, f *flow) error {
	now, err := s.current(ctx, f.call.Task, nil)
	switch {
	case err != nil:
		return err
	case !edition.Serves(f.call.Edition, now):
		return s.outdated(f.call, now, nil)
	}
	f.use(now)
	return nil
}

// use takes down the edition that the items of the call run with: whatever comes after it is to have the same.
func (f *flow) use(edition string) {
	if f.call.Ran != nil {
		f.call.Ran(edition)
	}
	f.call.Edition = edition
}

// outdated is the fault of a call for an edition that the files do not have.
func (s *Slot) outdated(call order, have string, modules []string) *gpumux.Fault {
	message := fmt.Sprintf("the code of task %s changes at each start of a process, at last to edition %s", call.Task.Name, have)
	hint := "let the import change no code, and start a new map"
	if call.Edition != "" {
		message = fmt.Sprintf("the map began with edition %s of the code of task %s, and this worker has edition %s",
			call.Edition, call.Task.Name, have)
		hint = "start a new map, which runs with the new code, or put the files back as they were and start this one again: it goes on; " +
			"what has finished is kept"
	}
	if path, changed := call.Task.Code().Newest(modules); path != "" {
		message += fmt.Sprintf("; %s changed last, at %s", path, changed.UTC().Format(time.RFC3339))
	}
	fault := &gpumux.Fault{Kind: gpumux.BadInput, Edition: have, Message: message, Hint: hint}
	s.locate(fault, call.Task)
	fault.Op = "start"
	return fault
}
