package slot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
)

// child is one operating-system process with all its descendants: from its start, which gives it marks, a cgroup and a file for its
// output, until nothing of it is left. Its methods are for one goroutine, but signal and exited are for any.
type child struct {
	o childOptions
	// program is what was started, pid its number and that of its group.
	program string
	pid     int
	out     *output
	// group is its cgroup, or nil.
	group *cgroup
	// exited is closed when it has ended and nothing of it is left; ended, its status, is set before.
	exited chan struct{}
	ended  *os.ProcessState
	// patience is how long it may take to end once it can run no more; after that lingers is called now and then, if it is set, by
	// whoever waits.
	patience time.Duration
	lingers  func()

	mark    mark
	process *os.Process
	// killed is when it was first awaited as one that can run no more.
	killed time.Time
}

// childOptions say what a child gets.
type childOptions struct {
	sweeper *Sweeper
	// cgroups makes its cgroup, limited to memory; nil makes none.
	cgroups *Cgroups
	memory  gpumux.Size
	// user is whom it runs as; nil is the worker's.
	user *User
	// exposure is by how much likelier it is killed than the worker when memory runs out, in thousandths of the memory.
	exposure int
	log      *zap.Logger
}

// newChild prepares a child that is still to be started or adopted; else it is to be discarded.
func newChild(o childOptions) (*child, error) {
	mark, err := o.sweeper.mark()
	if err != nil {
		return nil, err
	}
	out, err := newOutput()
	if err != nil {
		return nil, err
	}
	c := &child{o: o, mark: mark, out: out, exited: make(chan struct{})}
	if o.cgroups != nil {
		if c.group, err = o.cgroups.make(o.memory); err != nil {
			o.log.Warn("a task process has no cgroup; the memory watch alone keeps it within its budget", logWhy.text(err.Error()))
		}
	}
	return c, nil
}

// command is what a child is to run.
type command struct {
	argv []string
	// dir is its folder, env its environment without the child's marks, files its descriptors from 3 on. What it prints goes to the
	// child's output, but to stdout where that is given.
	dir           string
	env           []string
	files         []*os.File
	stdin, stdout *os.File
}

// start starts the command in a process group of its own. An error is a *programError when the system did not start the program.
func (c *child) start(run command) error {
	cmd := exec.Command(run.argv[0], run.argv[1:]...)
	cmd.Dir = run.dir
	// A relative program is relative to the folder, as a shell there would find it.
	if cmd.Err == nil && filepath.Base(run.argv[0]) != run.argv[0] && !filepath.IsAbs(run.argv[0]) && run.dir != "" {
		if abs, err := filepath.Abs(filepath.Join(run.dir, run.argv[0])); err == nil {
			cmd.Path = abs
		}
	}
	if c.o.user != nil && cmd.Err == nil {
		restrain(cmd, c.mark)
	}
	cmd.Env = append(run.env, workerToken+"="+c.o.sweeper.token, processToken+"="+c.mark.token)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = run.files, c.out.file, c.out.file
	if run.stdin != nil {
		cmd.Stdin = run.stdin
	}
	if run.stdout != nil {
		cmd.Stdout = run.stdout
	}
	if err := spawn(cmd, c.group, c.o.user); err != nil {
		c.discard()
		return &programError{run.argv[0], c.o.user, err}
	}
	c.program, c.process, c.pid = run.argv[0], cmd.Process, cmd.Process.Pid
	c.enlist()
	c.expose()
	return nil
}

func (c *child) enlist() {
	if err := enlist(c.pid, c.o.sweeper.number, c.mark.number); err != nil {
		c.mark.number = 0 // what else it has is not its own
		c.o.log.Debug("a task process is marked in its environment alone", logWhy.text(err.Error()))
	}
}

func (c *child) expose() {
	if err := expose(c.pid, c.o.exposure); err != nil {
		c.o.log.Debug("a task process is as likely to be killed as the worker when memory runs out", logWhy.text(err.Error()))
	}
}

// discard lets go of a child that was not started.
func (c *child) discard() {
	c.out.close()
	c.group.close()
}

// follow is the one place where the end of a child is seen, which it awaits by itself; gone is called before others learn of it.
func (c *child) follow(gone func()) {
	go func() {
		c.ended = await(c.process)
		strays(c.mark)
		gone()
		close(c.exited)
	}()
}

// signal reaches the group of a child that has not ended; the number of one that has may be a stranger's by now.
func (c *child) signal(signal syscall.Signal) {
	select {
	case <-c.exited:
	default:
		killGroup(c.pid, signal)
	}
}

// leaves reports whether a child has ended or is about to. The kernel closes a dying process's files before the process can be
// waited for: on a busy machine long before.
func (c *child) leaves() bool {
	for {
		select {
		case <-c.exited:
			return true
		case <-time.After(time.Second):
			if lives(c.pid) {
				return false
			}
			strays(c.mark) // a descendant that holds it as a debugger does keeps it from being reaped
			c.linger()
		}
	}
}

// destroyLimit is how long the end of a killed child is awaited before something is taken to hold it.
const destroyLimit = time.Second

// destroy kills the child and returns when nothing of it is left. Who traces a process is told of its end before its parent is, and
// may be a descendant of its own that never looks; that one has to end first.
func (c *child) destroy() {
	c.signal(syscall.SIGKILL)
	if c.killed.IsZero() {
		c.killed = time.Now()
	}
	held := time.NewTicker(destroyLimit)
	defer held.Stop()
	for {
		select {
		case <-c.exited:
			return
		case <-held.C:
			strays(c.mark)
			c.linger()
		}
	}
}

// linger is called again and again while a child that can run no more is awaited.
func (c *child) linger() {
	switch {
	case c.killed.IsZero():
		c.killed = time.Now()
	case c.lingers != nil && time.Since(c.killed) > c.patience:
		c.lingers()
	}
}

// kill destroys the child and lets go of its output and cgroup.
func (c *child) kill() {
	c.destroy()
	c.out.close()
	c.group.close()
}

// programError says that the system did not start the program.
type programError struct {
	program string
	user    *User
	err     error
}

func (e *programError) Error() string { return fmt.Sprintf("start %q: %v", e.program, e.err) }
func (e *programError) Unwrap() error { return e.err }
