// Package process owns one operating-system process with its descendants: its start, its
// mark, output file and out-of-memory score, its end, and the sweeper behind a killed
// worker. It never speaks with the process, and changes this program only where Dedicate
// asks for it. A Process stops when Destroy or Kill returns, or by itself; Exited is
// closed then.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Process is one operating-system process with all its descendants, until nothing of it
// is left. Its methods are for one goroutine; Signal and Exited are for any.
type Process struct {
	// Program is the started program, PID its number and that of its group.
	Program string
	PID     int
	Out     *Output
	// Exited is closed when nothing of it is left; Status is set before.
	Exited chan struct{}
	Status *os.ProcessState
	// Patience is how long a kill may take before Lingers, if set, is called now and then.
	Patience time.Duration
	Lingers  func()

	// mark is the limit on file locks that its descendants have.
	mark     uint64
	exposure int
	log      *zap.Logger
	process  *os.Process
	killed   time.Time // when a wait for its end began
}

// New prepares a process. Start or Adopt makes it real; Disown gives it up. Exposure is
// its handicap when memory runs out, in thousandths of the memory.
func New(exposure int, log *zap.Logger) (*Process, error) {
	if err := Sweep(); err != nil {
		return nil, err
	}
	out, err := newOutput()
	if err != nil {
		return nil, err
	}
	return &Process{exposure: exposure, log: log, mark: newMark(), Out: out, Exited: make(chan struct{})}, nil
}

type Command struct {
	Argv []string
	// Dir is its folder, Env its environment, Files its descriptors from 3 on. Standard
	// output goes to Stdout where that is given, all else that it prints to its output file.
	Dir   string
	Env   []string
	Files []*os.File
	// Cores are the processors that it runs on. Default: the worker's.
	Cores         []int
	Stdin, Stdout *os.File
}

// Start starts the command in a process group of its own. The error is a *ProgramError.
func (p *Process) Start(run Command) error {
	cmd := exec.Command(run.Argv[0], run.Argv[1:]...)
	cmd.Dir = run.Dir
	cmd.Env = append([]string{}, run.Env...) // never the worker's
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = run.Files, p.Out.File, p.Out.File
	if run.Stdin != nil {
		cmd.Stdin = run.Stdin
	}
	if run.Stdout != nil {
		cmd.Stdout = run.Stdout
	}
	if err := spawn(cmd, p.mark, run.Cores); err != nil {
		p.Out.close()
		return &ProgramError{run.Argv[0], err}
	}
	p.Program, p.process, p.PID = run.Argv[0], cmd.Process, cmd.Process.Pid
	p.expose()
	return nil
}

func (p *Process) expose() {
	if err := expose(p.PID, p.exposure); err != nil {
		p.log.Debug("a task process is as likely to be killed as the worker when memory runs out", zap.String("why", err.Error()))
	}
}

// Follow reaps the process in the background. It calls gone before it closes Exited.
func (p *Process) Follow(gone func()) {
	go func() {
		p.Status = await(p.process, p.killStrays)
		gone()
		close(p.Exited)
	}()
}

// Signal reaches the group of a process that has not ended; later its number is free.
func (p *Process) Signal(signal syscall.Signal) {
	select {
	case <-p.Exited:
	default:
		killGroup(p.PID, signal)
	}
}

// Leaves reports whether a process has ended or is about to. The kernel closes a dying
// process's files before the process can be reaped, on a busy machine long before.
func (p *Process) Leaves() bool {
	for !p.ends() {
		if lives(p.PID) {
			return false
		}
		p.linger()
	}
	return true
}

// Destroy kills the process and returns when nothing of it is left.
func (p *Process) Destroy() {
	p.Signal(syscall.SIGKILL)
	for !p.ends() {
		p.linger()
	}
}

func (p *Process) ends() bool {
	select {
	case <-p.Exited:
		return true
	case <-time.After(time.Second):
		return false
	}
}

// LingerHint is the next step where a killed process does not end.
const LingerHint = "look at the process's state, /proc/PID/stack and the kernel's log (dmesg) for a driver or a file system that " +
	"hangs, and end a debugger that holds it; the slot goes on by itself when the process is gone, else reboot the host"

func (p *Process) linger() {
	switch {
	case p.killed.IsZero():
		p.killed = time.Now()
	case p.Lingers != nil && time.Since(p.killed) > p.Patience:
		p.Lingers()
	}
}

// Kill destroys the process and releases its output.
func (p *Process) Kill() {
	p.Destroy()
	p.Out.close()
}

// Disown releases a process that was not adopted. It has the template's mark, and ends
// with the template.
func (p *Process) Disown() { p.Out.close() }

// Scarce reports whether the system lacked what it will have again, such as memory.
func Scarce(err error) bool {
	lacks := []error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM}
	return slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) })
}

// ProgramError says that the system did not start the program.
type ProgramError struct {
	program string
	err     error
}

func (e *ProgramError) Error() string { return fmt.Sprintf("start %q: %v", e.program, e.err) }

func (e *ProgramError) Unwrap() error { return e.err }
