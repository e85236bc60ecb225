package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Spawners start processes from threads that never end: the kernel sends the parent-death
// signal when the forking thread ends. Such a thread withholds the worker's capabilities
// from its children.
var taskSpawner = sync.OnceValue(newSpawner)

func newSpawner() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		for f := range work {
			f()
		}
	}()
	return work
}

// spawn starts the command as the leader of its own process group, with the mark. The
// kernel kills it when the worker dies.
func spawn(cmd *exec.Cmd, mark uint64, cores []int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := startLeader(cmd, cores); err != nil {
		return err
	}
	setMark(cmd.Process.Pid, mark)
	return nil
}

// startLeader starts a command that leads a group of its own. The caller must await it.
func startLeader(cmd *exec.Cmd, cores []int) error {
	started := make(chan error)
	taskSpawner() <- func() {
		defer bind(cores)()
		childLock.RLock()
		defer childLock.RUnlock()
		err := cmd.Start()
		if err == nil {
			leaders.Store(cmd.Process.Pid, true)
		}
		started <- err
	}
	return <-started
}

// bind makes what this thread starts run on these processors, until it is undone. Where
// that is refused, it runs on all.
func bind(cores []int) (undo func()) {
	var before, near unix.CPUSet
	if len(cores) == 0 || unix.SchedGetaffinity(0, &before) != nil {
		return func() {}
	}
	for _, core := range cores {
		near.Set(core)
	}
	_ = unix.SchedSetaffinity(0, &near)
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}

// Cores are the processors that this process may use.
func Cores() (cores []int) {
	var set unix.CPUSet
	_ = unix.SchedGetaffinity(0, &set) // else it has none
	for core := range 8 * int(unsafe.Sizeof(set)) {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}

var leaders sync.Map

// await waits until the process has ended, then kills the rest of its group and calls
// rest, if set, then reaps it. In this order the group's number is not in use again.
func await(child *os.Process, rest func()) *os.ProcessState {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, child.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	killGroup(child.Pid, syscall.SIGKILL)
	if rest != nil {
		rest()
	}
	childLock.RLock()
	defer childLock.RUnlock()
	ended, _ := child.Wait()
	leaders.Delete(child.Pid)
	return ended
}

func killGroup(pid int, signal syscall.Signal) { syscall.Kill(-pid, signal) }

// MostResident is the peak resident memory of an ended process or a reaped child, or 0. A
// process inherits this one's peak, so a smaller one tells nothing.
func MostResident(ended *os.ProcessState) int64 {
	var self syscall.Rusage
	usage, ok := ended.SysUsage().(*syscall.Rusage)
	if !ok || syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil || usage.Maxrss <= self.Maxrss {
		return 0
	}
	return usage.Maxrss << 10
}

func outputFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("gpumux-output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// In append mode writers that share the file do not overwrite each other.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set append mode: %w", err)
	}
	return os.NewFile(uintptr(fd), "gpumux-output"), nil
}

func release(file *os.File, start, end int64) {
	if end > start {
		unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, start, end-start)
	}
}

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
