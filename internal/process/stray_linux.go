package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// strayLimit is how long killStrays chases descendants that keep forking, and waits for
// exiting ones. Only a process that hangs in the kernel takes that long.
const strayLimit = 5 * time.Second

// childLock keeps the worker's children from changing while they are listed: the kernel
// leaves some out when one is reaped meanwhile, and a new child is not among the leaders
// at once. Listing takes the write lock; starting and reaping take the read lock.
var childLock sync.RWMutex

// killStrays kills and reaps the descendants of a process. Its memory is free when they
// are gone, not when they are killed. The worker, their subreaper, adopts them as their
// parents end, so it looks until it finds none.
func (p *Process) killStrays() {
	for end := time.Now().Add(strayLimit); p.killOrphans() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (p *Process) killOrphans() (found bool) {
	childLock.Lock()
	defer childLock.Unlock()
	for _, pid := range children() {
		if leads(pid) || !p.owns(pid) {
			continue
		}
		found = true
		syscall.Kill(pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
	return found
}

// owns reports whether a process is this one, in its group, or marked as its descendant.
func (p *Process) owns(pid int) bool {
	return markOf(pid) == p.mark || p.PID != 0 && groupOf(pid) == p.PID
}

const exitingFlag = 4

// lives reports whether a process is there and has not begun to end.
func lives(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X" && stat.Flags&exitingFlag == 0
}

func leads(pid int) bool {
	_, leader := leaders.Load(pid)
	return leader
}

// reapOrphansEvery is how often orphans are reaped while their process lives on.
const reapOrphansEvery = time.Second

// reapOrphans reaps orphans that have ended. Otherwise they stay until the end of their
// process, which may leave some with every item.
func reapOrphans() {
	var info unix.Siginfo
	if unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) != nil || info.Signo == 0 {
		return // none has ended
	}
	childLock.Lock()
	defer childLock.Unlock()
	for _, pid := range children() {
		// Other parts of this program reap their own.
		if !leads(pid) && (leads(groupOf(pid)) || markOf(pid)/processNumbers == program) {
			syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// children lists the children of the first thread, which adopts orphans.
func children() (pids []int) {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	for field := range bytes.FieldsSeq(list) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func groupOf(pid int) int {
	group, err := syscall.Getpgid(pid)
	if err != nil {
		return pid
	}
	return group
}

var dedicated atomic.Bool

// Dedicate makes this program one that does nothing but run tasks. It adopts orphaned
// descendants of tasks in place of init, so that they end with their task and templates
// can fork. Its environment and memory, which hold credentials, are hidden from processes
// of the same user: it leaves no core dump, and only root attaches a debugger.
var Dedicate = sync.OnceFunc(func() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	dedicated.Store(true)
	go func() {
		for range time.Tick(reapOrphansEvery) {
			reapOrphans()
		}
	}()
})

// Dedicated reports whether the program adopts orphans; only Linux lets it.
func Dedicated() bool { return dedicated.Load() }

// A task process and its descendants have a number of their own as their soft limit on
// file locks: the digits of this program, then those of the process. Every fork and exec
// inherits it, and the kernel does not enforce it. So a descendant that leaves its group
// and its session keeps it.

// processNumbers is how many numbers a program has for its processes: their last six
// digits.
const processNumbers = 1_000_000

// program is the part of this program's numbers that all of them share.
var program = 1_000_000_000_000 + rand.Uint64N(3_000_000_000_000)

var processes atomic.Uint64

func newMark() uint64 { return program*processNumbers + processes.Add(1)%processNumbers }

// setMark marks a process. Nothing does in a sandbox that forbids it.
func setMark(pid int, mark uint64) {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) == nil {
		limit.Cur = mark
		_ = unix.Prlimit(pid, unix.RLIMIT_LOCKS, &limit, nil)
	}
}

// markOf reads a process's number, a zombie's too; 0 for one with another user's rights.
func markOf(pid int) uint64 {
	var limit unix.Rlimit
	_ = unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	return limit.Cur
}
