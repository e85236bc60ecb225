package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/edition"
)

// unsteady is how often the code of a task may change while a process imports it before the call is given up.
const unsteady = 3

// Edition is that of the task's code as its files are now. It blocks while their file system does not answer.
func (t Task) Edition() string { return t.code().Edition() }

func (t Task) code() edition.Code {
	command := t.Command
	if len(command) == 0 {
		command = t.Program
	}
	return edition.Code{Dir: t.Dir, Target: t.Python, Command: command}
}

// looking has a channel for each code, which is full while somebody looks at its files: one that hangs costs one thread.
var looking sync.Map

// current is the edition of a task's code as its files are now, with modules that a process has loaded. An *unreachableError says that
// their file system does not answer.
func current(ctx context.Context, quit <-chan struct{}, o Options, task Task, modules []string) (string, error) {
	code := task.code()
	wait := min(o.StartLimit, reachLimit)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	one, _ := looking.LoadOrStore(fmt.Sprint(code), make(chan struct{}, 1))
	turn, found := one.(chan struct{}), make(chan string, 1)
	for free := turn; ; {
		select {
		case free <- struct{}{}:
			free = nil
			go func() {
				defer func() { <-turn }()
				found <- code.With(modules)
			}()
		case edition := <-found:
			return edition, nil
		case <-limit.C:
			return "", &unreachableError{strings.Join(append(code.Command, code.Target), " "), task.Dir, wait}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-quit:
			return "", ErrStopped
		}
	}
}

// current is current for a call of this slot. An error is the fault of a start, or why the call ended.
func (s *Slot) current(ctx context.Context, task Task, modules []string) (string, error) {
	now, err := current(ctx, s.quit, s.o, task, modules)
	var away *unreachableError
	if errors.As(err, &away) {
		return "", s.unstarted(task, err)
	}
	return now, err
}

// ready returns a process that may run an item of the call: the present one where it suits, else a new one. Its code has the
// edition that the call is for, and the files still have it, so that what the process imports later is of it, too.
func (s *Slot) ready(ctx context.Context, f *flow) (*session, error) {
	for range unsteady {
		var modules []string
		if s.process != nil && same(s.process.task, f.call.Task) {
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
		f.of(p.edition)
		return p, nil
	}
	now, err := s.current(ctx, f.call.Task, nil)
	if err != nil {
		return nil, err
	}
	return nil, s.outdated(f.call, now, nil)
}

// begun asks for the edition before a command starts, which has to be the call's.
func (s *Slot) begun(ctx context.Context, f *flow) error {
	now, err := s.current(ctx, f.call.Task, nil)
	switch {
	case err != nil:
		return err
	case !edition.Serves(f.call.Edition, now):
		return s.outdated(f.call, now, nil)
	}
	f.of(now)
	return nil
}

// of takes down the edition that the items of the call run with: whatever comes after it is to have the same.
func (f *flow) of(edition string) {
	if f.call.Ran != nil {
		f.call.Ran(edition)
	}
	f.call.Edition = edition
}

// outdated is the fault of a call for an edition that the files do not have.
func (s *Slot) outdated(call Call, have string, modules []string) *gpumux.Fault {
	message := fmt.Sprintf("the code of task %s changes at each start of a process, at last to edition %s", call.Task.Name, have)
	hint := "let the import change no code, and start a new map"
	if call.Edition != "" {
		message = fmt.Sprintf("the map began with edition %s of the code of task %s, and this worker has edition %s", call.Edition, call.Task.Name, have)
		hint = "start a new map, which runs with the new code, or put the files back as they were and start this one again: it goes on; " +
			"what has finished is kept"
	}
	if path, changed := call.Task.code().Newest(modules); path != "" {
		message += fmt.Sprintf("; %s changed last, at %s", path, changed.UTC().Format(time.RFC3339))
	}
	fault := &gpumux.Fault{Kind: gpumux.BadInput, Edition: have, Message: message, Hint: hint}
	s.place(fault, call.Task)
	fault.Op = "start"
	return fault
}
