package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawners start processes from threads that never end: the kernel sends the parent-death signal when the thread that forked is
// gone, not when the process is. What a process may do comes from the thread that forked it.
var (
	// sweeperSpawner keeps all that the worker may: a sweeper has to end processes of other users.
	sweeperSpawner = sync.OnceValue(func() chan<- func() { return newSpawner(nil) })
	taskSpawner    = sync.OnceValue(func() chan<- func() { return newSpawner(dropAmbient) })
	userSpawner    = sync.OnceValue(func() chan<- func() { return newSpawner(dropPrivileges) })
	// watched is done once, before the first process starts.
	watched = sync.OnceFunc(func() {
		// Descendants whose parent died come to the worker instead of init, so that none gets out of sight.
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		conceal()
		go func() {
			for range time.Tick(gatherEvery) {
				gather()
			}
		}()
	})
)

func newSpawner(prepare func()) chan<- func() {
	watched()
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		if prepare != nil {
			prepare()
		}
		for f := range work {
			f()
		}
	}()
	return work
}

// spawn starts the command as the leader of its own process group, killed by the kernel when the worker dies, as the user where
// there is one.
func spawn(cmd *exec.Cmd, group *cgroup, user *User) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if fd, ok := group.descriptor(); ok {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	if user == nil {
		return startLeader(cmd, taskSpawner())
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	return startLeader(cmd, userSpawner())
}

// startLeader starts a command that leads a group of its own, whose end somebody awaits.
func startLeader(cmd *exec.Cmd, spawner chan<- func()) error {
	started := make(chan error)
	spawner <- func() {
		kin.RLock()
		defer kin.RUnlock()
		err := cmd.Start()
		if err == nil {
			leaders.Store(cmd.Process.Pid, true)
		}
		started <- err
	}
	return <-started
}

// leaders are the processes that somebody awaits, and reaps; every other child of the worker that leads no such group is an orphan.
var leaders sync.Map

// await blocks until the process has ended, then kills what is left of its group, then reaps it. In this order the group's
// number cannot have passed to a stranger.
func await(child *os.Process) *os.ProcessState {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, child.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	killGroup(child.Pid, syscall.SIGKILL)
	kin.RLock()
	ended, _ := child.Wait()
	leaders.Delete(child.Pid)
	kin.RUnlock()
	reap(child.Pid)
	return ended
}

// reapLimit is how long the killed members of a group are awaited. Only one that hangs in the kernel takes that long.
const reapLimit = 5 * time.Second

// reap waits for the members of a group, which have become children of the worker when their parents ended: what they held
// is free when they are gone, not when they are killed.
func reap(group int) {
	for end := time.Now().Add(reapLimit); time.Now().Before(end); {
		kin.RLock()
		pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
		kin.RUnlock()
		if err != nil && err != syscall.EINTR {
			return
		}
		if pid == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

func killGroup(pid int, signal syscall.Signal) { syscall.Kill(-pid, signal) }

// MostResident is the most resident memory in bytes that an ended process or one of its awaited children held, or 0. A process
// starts as a copy of this one and inherits its mark, so a smaller one tells nothing.
func MostResident(ended *os.ProcessState) int64 {
	var own syscall.Rusage
	theirs, ok := ended.SysUsage().(*syscall.Rusage)
	if !ok || syscall.Getrusage(syscall.RUSAGE_SELF, &own) != nil || theirs.Maxrss <= own.Maxrss {
		return 0
	}
	return theirs.Maxrss << 10
}

func outputFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("gpumux-output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// Two descriptors share the offset; appending keeps writers of both from overwriting each other.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set append mode: %w", err)
	}
	return os.NewFile(uintptr(fd), "gpumux-output"), nil
}

// release gives the pages between two offsets back to the system; the offsets themselves stay valid.
func release(file *os.File, start, end int64) {
	if end > start {
		unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, start, end-start)
	}
}
