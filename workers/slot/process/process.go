package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
)

// Process is one operating-system process with all its descendants: from its start, which gives it marks, a cgroup and a file for its
// output, until nothing of it is left. Its methods are for one goroutine, but Signal and Exited are for any.
type Process struct {
	o Options
	// Program is what was started, PID its number and that of its group.
	Program string
	PID     int
	Out     *Output
	// group is its cgroup, or nil.
	group *cgroup
	// Exited is closed when it has ended and nothing of it is left; Status is set before.
	Exited chan struct{}
	Status *os.ProcessState
	// Patience is how long it may take to end once it can run no more. After that Lingers, if it is set, is called now and then by
	// whoever waits.
	Patience time.Duration
	Lingers  func()

	mark    mark
	process *os.Process
	// killed is when it was first awaited as one that can run no more.
	killed time.Time
}

// Options say what a process gets.
type Options struct {
	Sweeper *Sweeper
	// Cgroups makes its cgroup, limited to Memory; nil makes none.
	Cgroups *Cgroups
	Memory  gpumux.Size
	// User is whom it runs as; nil is the worker's.
	User *User
	// Exposure is by how much likelier it is killed than the worker when memory runs out, in thousandths of the memory.
	Exposure int
	Log      *zap.Logger
}

// New prepares a process: Start or Adopt makes it one, or Disown lets go of it.
func New(o Options) (*Process, error) {
	mark, err := o.Sweeper.mark()
	if err != nil {
		return nil, err
	}
	out, err := newOutput()
	if err != nil {
		return nil, err
	}
	p := &Process{o: o, mark: mark, Out: out, Exited: make(chan struct{})}
	if o.Cgroups != nil {
		if p.group, err = o.Cgroups.make(o.Memory); err != nil {
			o.Log.Warn("a task process has no cgroup; the memory watch alone keeps it within its budget", zap.String(logkey.Why, err.Error()))
		}
	}
	return p, nil
}

// Token is what it shows in its environment.
func (p *Process) Token() string { return p.mark.token }

// Command is what a process is to run.
type Command struct {
	Argv []string
	// Dir is its folder, Env its environment without its marks, Files its descriptors from 3 on. What it prints goes to its
	// output, but to Stdout where that is given.
	Dir           string
	Env           []string
	Files         []*os.File
	Stdin, Stdout *os.File
}

// Start starts the command in a process group of its own. An error is a *ProgramError when the system did not start the program.
func (p *Process) Start(run Command) error {
	cmd := exec.Command(run.Argv[0], run.Argv[1:]...)
	cmd.Dir = run.Dir
	// A relative program is relative to the folder, as a shell there would find it.
	if cmd.Err == nil && filepath.Base(run.Argv[0]) != run.Argv[0] && !filepath.IsAbs(run.Argv[0]) && run.Dir != "" {
		if abs, err := filepath.Abs(filepath.Join(run.Dir, run.Argv[0])); err == nil {
			cmd.Path = abs
		}
	}
	if p.o.User != nil && cmd.Err == nil {
		restrain(cmd, p.mark)
	}
	cmd.Env = append(run.Env, workerToken+"="+p.o.Sweeper.token, processToken+"="+p.mark.token)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = run.Files, p.Out.File, p.Out.File
	if run.Stdin != nil {
		cmd.Stdin = run.Stdin
	}
	if run.Stdout != nil {
		cmd.Stdout = run.Stdout
	}
	if err := spawn(cmd, p.group, p.o.User); err != nil {
		p.discard()
		return &ProgramError{run.Argv[0], p.o.User, err}
	}
	p.Program, p.process, p.PID = run.Argv[0], cmd.Process, cmd.Process.Pid
	p.enlist()
	p.expose()
	return nil
}

// enlist gives it its numbers, and reports whether that went well. What runs as another user gives them to itself, too.
func (p *Process) enlist() bool {
	err := enlist(p.PID, p.o.Sweeper.number, p.mark.number)
	if err != nil {
		p.o.Log.Debug("a task process is marked in its environment alone", zap.String(logkey.Why, err.Error()))
	}
	return err == nil
}

func (p *Process) expose() {
	if err := expose(p.PID, p.o.Exposure); err != nil {
		p.o.Log.Debug("a task process is as likely to be killed as the worker when memory runs out", zap.String(logkey.Why, err.Error()))
	}
}

// discard lets go of a process that was not started.
func (p *Process) discard() {
	p.Out.close()
	p.group.close()
}

// Kills are the processes of a tree that the kernel killed because memory ran out, as its cgroup tells.
type Kills struct {
	Number int
	// Own says that it was the cgroup's own limit that they met, and not one further up or the end of the host's memory.
	Own bool
	// Peak is the most bytes that the cgroup held.
	Peak int64
}

// Kills is what the kernel killed so far.
func (p *Process) Kills() Kills { return p.group.kills() }

// Follow is the one place where the end of a process is seen, which it awaits by itself; gone is called before others learn of it.
func (p *Process) Follow(gone func()) {
	go func() {
		p.Status = await(p.process)
		strays(p.mark)
		gone()
		close(p.Exited)
	}()
}

// Signal reaches the group of a process that has not ended; the number of one that has may be a stranger's by now.
func (p *Process) Signal(signal syscall.Signal) {
	select {
	case <-p.Exited:
	default:
		killGroup(p.PID, signal)
	}
}

// Leaves reports whether a process has ended or is about to. The kernel closes a dying process's files before the process can be
// waited for: on a busy machine long before.
func (p *Process) Leaves() bool {
	for {
		select {
		case <-p.Exited:
			return true
		case <-time.After(time.Second):
			if lives(p.PID) {
				return false
			}
			strays(p.mark) // a descendant that holds it as a debugger does keeps it from being reaped
			p.linger()
		}
	}
}

// destroyLimit is how long the end of a killed process is awaited before something is taken to hold it.
const destroyLimit = time.Second

// Destroy kills the process and returns when nothing of it is left. Who traces a process is told of its end before its parent is, and
// may be a descendant of its own that never looks; that one has to end first.
func (p *Process) Destroy() {
	p.Signal(syscall.SIGKILL)
	if p.killed.IsZero() {
		p.killed = time.Now()
	}
	held := time.NewTicker(destroyLimit)
	defer held.Stop()
	for {
		select {
		case <-p.Exited:
			return
		case <-held.C:
			strays(p.mark)
			p.linger()
		}
	}
}

// LingerHint is the next step where a killed process does not end.
const LingerHint = "look at the process's state, /proc/PID/stack and the kernel's log (dmesg) for a driver or a file system that " +
	"hangs, and end a debugger that holds it; the slot goes on by itself when the process is gone, else reboot the host"

// linger is called again and again while a process that can run no more is awaited.
func (p *Process) linger() {
	switch {
	case p.killed.IsZero():
		p.killed = time.Now()
	case p.Lingers != nil && time.Since(p.killed) > p.Patience:
		p.Lingers()
	}
}

// Kill destroys the process and lets go of its output and cgroup.
func (p *Process) Kill() {
	p.Destroy()
	p.Out.close()
	p.group.close()
}

// Scarce reports whether the worker or its machine ran out of something that comes back when others let go of it.
func Scarce(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// ProgramError reports whether the system did not start the program.
type ProgramError struct {
	program string
	User    *User
	err     error
}

// Error is error's.
func (e *ProgramError) Error() string { return fmt.Sprintf("start %q: %v", e.program, e.err) }

// Unwrap is errors.Is's.
func (e *ProgramError) Unwrap() error { return e.err }
