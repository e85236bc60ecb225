package process

import (
	"fmt"
	"os"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/logkey"
)

// Adopt takes in a process that another one has forked, with the group that it leads. It has to be the worker's own by now
// and to show its token, by which its descendants are found; otherwise it is killed.
func (p *Process) Adopt(pid int) error {
	if err := p.recognize(pid); err != nil {
		return err
	}
	p.PID = pid
	p.process, _ = os.FindProcess(pid)
	if !p.enlist() {
		p.mark.number = 0 // it has the template's, by which nobody finds it
	}
	if err := p.group.add(pid); err != nil {
		p.o.Log.Warn("a task process is in no cgroup; the memory watch alone keeps it within its budget", zap.String(logkey.Why, err.Error()))
	}
	p.expose()
	return nil
}

func (p *Process) recognize(pid int) error {
	env, err := os.ReadFile(fmt.Sprintf("%s/%d/environ", proc, pid)) // before the lock, since it may wait for the process
	kin.RLock()
	defer kin.RUnlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		return fmt.Errorf("the forked process %d does not belong to the worker: %w", pid, err)
	}
	if err != nil || !carries(env, []byte(processToken+"="+p.mark.token)) || group(pid) != pid {
		syscall.Kill(pid, syscall.SIGKILL)
		return fmt.Errorf("the forked process %d does not carry its mark", pid)
	}
	leaders.Store(pid, true)
	return nil
}

// Disown lets go of a process that was forked and not adopted. It may show its token, and still has the number of its template.
func (p *Process) Disown() {
	p.mark.number = 0
	strays(p.mark)
	p.discard()
}
