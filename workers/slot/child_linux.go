package slot

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes a process that another one has forked the child, with the group that it leads. It has to be the worker's own by now
// and to show the child's token, by which its descendants are found; otherwise it is killed.
func (c *child) adopt(pid int) error {
	if err := c.recognize(pid); err != nil {
		return err
	}
	c.pid = pid
	c.process, _ = os.FindProcess(pid)
	c.enlist()
	if err := c.group.add(pid); err != nil {
		c.o.log.Warn("a task process is in no cgroup; the memory watch alone keeps it within its budget", logWhy.text(err.Error()))
	}
	c.expose()
	return nil
}

func (c *child) recognize(pid int) error {
	env, err := os.ReadFile(fmt.Sprintf("%s/%d/environ", procfs, pid)) // before the lock, since it may wait for the process
	kin.RLock()
	defer kin.RUnlock()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil); err != nil {
		return fmt.Errorf("the forked process %d does not belong to the worker: %w", pid, err)
	}
	if err != nil || !carries(env, []byte(processToken+"="+c.mark.token)) || group(pid) != pid {
		syscall.Kill(pid, syscall.SIGKILL)
		return fmt.Errorf("the forked process %d does not carry its mark", pid)
	}
	leaders.Store(pid, true)
	return nil
}

// disown lets go of a child that was forked and not adopted. It may show its token, and still has the number of its template.
func (c *child) disown() {
	c.mark.number = 0
	strays(c.mark)
	c.discard()
}
