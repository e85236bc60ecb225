package process

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Adopt takes over a process that a template has forked. It refuses one that is not the
// worker's child, and kills one without the mark.
func (p *Process) Adopt(pid int) error {
	childLock.RLock()
	defer childLock.RUnlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		return fmt.Errorf("the forked process %d does not belong to the worker: %w", pid, err)
	}
	if p.Mark != 0 && markOf(pid) != p.Mark || groupOf(pid) != pid {
		syscall.Kill(pid, syscall.SIGKILL)
		return fmt.Errorf("the forked process %d does not carry its mark", pid)
	}
	leaders.Store(pid, true)
	p.PID = pid
	p.process, _ = os.FindProcess(pid)
	p.expose()
	return nil
}

// Disown kills and releases a process that was forked and not adopted. Before it sets its
// mark, it has the template's, and ends with the template.
func (p *Process) Disown() {
	p.killStrays()
	p.Out.close()
}
