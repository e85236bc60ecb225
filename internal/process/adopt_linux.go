package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Adopt takes over a process that a template has forked, and marks it. It refuses one
// that is not the worker's child.
func (p *Process) Adopt(pid int) error {
	childLock.RLock()
	defer childLock.RUnlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		return fmt.Errorf("the forked process %d does not belong to the worker: %w", pid, err)
	}
	setMark(pid, p.mark)
	leaders.Store(pid, true)
	p.PID = pid
	p.process, _ = os.FindProcess(pid)
	p.expose()
	return nil
}
