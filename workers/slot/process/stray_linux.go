package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// strayLimit is how long killStrays chases descendants that keep forking, and waits for exiting ones.
	strayLimit = 2 * time.Second
	// strayRetries is how often it reads an empty environment again: the process may be about to become another program.
	strayRetries = 10
)

// childLock keeps the worker's children from changing while they are listed: the kernel leaves some out when one is reaped
// meanwhile, and a new child is not among the leaders at once. Listing takes the write lock; starting and reaping take the read lock.
var childLock sync.RWMutex

// killStrays kills the descendants of a process that left its group. The worker, their subreaper, has adopted them as orphans, and
// they still carry one of the process's marks. A death may orphan others, so it goes on until it finds nothing new.
func killStrays(m mark) {
	var found orphans
	environs := map[int]environ{}
	retries := 0
	for end := time.Now().Add(strayLimit); time.Now().Before(end); {
		found = findOrphans(m, environs)
		for _, pid := range found.marked {
			// A whole group at once, so none of it escapes by forking.
			if group := groupOf(pid); group != syscall.Getpgrp() && !leads(group) {
				killGroup(group, syscall.SIGKILL)
				reap(group)
			} else {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		switch {
		case len(found.unread) > 0:
			for _, pid := range found.unread {
				began := time.Now()
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
				environs[pid] = environ{text, err}
				end = end.Add(time.Since(began))
			}
			continue
		case len(found.marked) > 0 || found.reaped:
		case len(found.exiting) > 0 || found.empty && retries < strayRetries:
			retries++
			time.Sleep(time.Millisecond)
		default:
			return
		}
		clear(environs) // a process that became another program has a new one
	}
	for _, pid := range found.exiting {
		stuck.Store(pid, true)
	}
}

// stuck are orphans that exit and never end, such as those that hang in a driver. Nothing waits for them twice.
var stuck sync.Map

// orphans sorts the worker's orphans for one mark.
type orphans struct {
	marked  []int // carry the mark
	unread  []int // only their environment can tell
	exiting []int // may leave children behind
	reaped  bool  // at least one had ended by itself
	empty   bool  // at least one has an empty environment
}

// environ is the result of reading a process's environment. The read waits for a process that maps memory in one long system call,
// so it happens outside childLock.
type environ struct {
	text []byte
	err  error
}

// findOrphans goes by the numbers of processes, and by the environments that were read where numbers tell nothing.
func findOrphans(m mark, environs map[int]environ) (found orphans) {
	childLock.Lock()
	defer childLock.Unlock()
	for _, pid := range children() {
		if leads(pid) {
			continue
		}
		ours, theirs, known := numbered(pid, m)
		env, read := environs[pid]
		switch {
		case carries(env.text, m) || ours && (!exiting(pid) || endedElsewhere(pid)):
			found.marked = append(found.marked, pid)
		case theirs || errors.Is(env.err, fs.ErrPermission) || len(env.text) > 0:
		case !ours && !read:
			found.unread = append(found.unread, pid)
		default:
			group := groupOf(pid)
			state, _ := stateOf(pid)
			if group == syscall.Getpgrp() || leads(group) || state == 'Z' && m.number != 0 && !descends(pid) {
				continue // others reap it
			}
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
				found.reaped = true
				stuck.Delete(pid)
			} else if !exiting(pid) {
				found.empty = found.empty || !known
			} else if _, hangs := stuck.Load(pid); !hangs {
				found.exiting = append(found.exiting, pid)
			}
		}
	}
	return found
}

// endedElsewhere reports whether a process is a zombie in a group that no leader leads. Other members of that group may live.
func endedElsewhere(pid int) bool {
	state, _ := stateOf(pid)
	group := groupOf(pid)
	return state == 'Z' && group != syscall.Getpgrp() && !leads(group)
}

// exitingFlag is the kernel's PF_EXITING.
const exitingFlag = 4

// exiting reports whether a process has begun to end: its environment is gone, but its children are still its own.
func exiting(pid int) bool {
	_, flags := stateOf(pid)
	return flags&exitingFlag != 0
}

// lives reports whether a process is there and has not begun to end.
func lives(pid int) bool {
	state, flags := stateOf(pid)
	return state != 0 && state != 'Z' && state != 'X' && flags&exitingFlag == 0
}

// stateOf is a process's state, such as Z for a zombie, and its flags in the kernel.
func stateOf(pid int) (state byte, flags uint64) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, ppid, pgrp, session, tty, tpgid, flags
	if len(fields) < 7 {
		return 0, 0
	}
	flags, _ = strconv.ParseUint(string(fields[6]), 10, 64)
	return fields[0][0], flags
}

// leads reports whether await will reap a process, which leads a group of its own.
func leads(pid int) bool {
	_, leader := leaders.Load(pid)
	return leader
}

// carries reports whether an environment has the token of a mark.
func carries(environ []byte, m mark) bool {
	return slices.Contains(strings.Split(string(environ), "\x00"), processToken+"="+m.token)
}

// reapOrphansEvery is how often orphans are reaped while their process lives on.
const reapOrphansEvery = time.Second

// reapOrphans reaps orphans that have ended. Otherwise they stay until the end of their process, which may leave some with every
// item.
func reapOrphans() {
	var info unix.Siginfo
	if unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) != nil || info.Signo == 0 {
		return // none has ended
	}
	childLock.Lock()
	defer childLock.Unlock()
	for _, pid := range children() {
		// Other parts of this program reap their own.
		if leads(pid) || groupOf(pid) == syscall.Getpgrp() || !descends(pid) {
			continue
		}
		if reaped, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid {
			stuck.Delete(pid)
		}
	}
}

func children() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		list, _ := os.ReadFile(file)
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// owns reports whether a process is this one, in its group, or marked as its descendant.
func (p *Process) owns(pid int) bool {
	ours, _, _ := numbered(pid, p.mark)
	return ours || groupOf(pid) == p.PID
}

func groupOf(pid int) int {
	group, err := syscall.Getpgid(pid)
	if err != nil {
		return pid
	}
	return group
}
