package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// strayLimit is how long a descendant that keeps changing its process is chased, and one that is about to end awaited.
	strayLimit = 2 * time.Second
	// strayBlind is how often an orphan is looked at again whose environment is empty, perhaps because it is about to become
	// another program.
	strayBlind = 10
)

// kin keeps the worker's children from changing while they are listed: the kernel leaves some out when one is reaped
// meanwhile, and one that was just started is not known as a leader yet. Who lists holds it alone, who starts or reaps holds
// it with others.
var kin sync.RWMutex

// strays kills the descendants of a process that left its group: as orphans they have become children of the worker, which
// is their subreaper, and they still carry one of the process's marks. Killing one may orphan others, and one that ends by
// itself may leave others behind, so it goes on until a look finds nothing new.
func strays(mark mark) {
	var found orphans
	environs := map[int]reading{}
	blind := 0
	for end := time.Now().Add(strayLimit); time.Now().Before(end); {
		found = orphaned(mark, environs)
		for _, pid := range found.marked {
			// A whole group at once, of which none can get away by forking.
			if group := group(pid); group != syscall.Getpgrp() && !leads(group) {
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
				environs[pid] = reading{text, err}
				end = end.Add(time.Since(began))
			}
			continue
		case len(found.marked) > 0 || found.ended:
		case len(found.ending) > 0 || found.blind && blind < strayBlind:
			blind++
			time.Sleep(time.Millisecond)
		default:
			return
		}
		clear(environs) // it has another one when it becomes another program
	}
	for _, pid := range found.ending {
		stuck.Store(pid, true)
	}
}

// stuck are orphans that were about to end and did not, such as those that hang in a driver. Nobody waits for them twice.
var stuck sync.Map

// orphans are what one look finds: those with the mark, those of which only the environment tells whether they have it, those
// that are about to end and may leave children behind, whether one had ended by itself, and whether there was one whose
// environment is empty.
type orphans struct {
	marked, unread, ending []int
	ended, blind           bool
}

// reading is what came of reading a process's environment. Whoever reads it waits for a process that maps memory in one long call
// of the kernel, so nobody does while others want to start and reap theirs.
type reading struct {
	text []byte
	err  error
}

// orphaned looks once. It goes by the numbers of processes, and by the environments that were read where these say nothing.
func orphaned(mark mark, environs map[int]reading) (found orphans) {
	kin.Lock()
	defer kin.Unlock()
	for _, pid := range children() {
		if leads(pid) {
			continue
		}
		ours, theirs, known := enlisted(pid, mark)
		env, read := environs[pid]
		switch {
		case carries(env.text, []byte(processToken+"="+mark.token)) || ours && !ending(pid) || ours && away(pid):
			found.marked = append(found.marked, pid)
		case theirs || errors.Is(env.err, fs.ErrPermission) || len(env.text) > 0:
		case !ours && !read:
			found.unread = append(found.unread, pid)
		default:
			group := group(pid)
			state, _ := condition(pid)
			if group == syscall.Getpgrp() || leads(group) || state == 'Z' && mark.number != 0 && !descends(pid) {
				continue // somebody else waits for it
			}
			if reaped, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid || err != nil {
				found.ended = true
				stuck.Delete(pid)
			} else if !ending(pid) {
				found.blind = found.blind || !known
			} else if _, known := stuck.Load(pid); !known {
				found.ending = append(found.ending, pid)
			}
		}
	}
	return found
}

// away reports whether a process has ended in a group that is nobody's whom we know. Its own group has others that still live, perhaps,
// of which each ends before it can be looked at.
func away(pid int) bool {
	if state, _ := condition(pid); state != 'Z' {
		return false
	}
	group := group(pid)
	return group != syscall.Getpgrp() && !leads(group)
}

// exiting is the kernel's PF_EXITING.
const exiting = 4

// ending reports whether a process has begun to end: it has no environment any more, but still its children.
func ending(pid int) bool {
	_, flags := condition(pid)
	return flags&exiting != 0
}

// lives reports whether a process is there and has not begun to end.
func lives(pid int) bool {
	state, flags := condition(pid)
	return state != 0 && state != 'Z' && state != 'X' && flags&exiting == 0
}

// condition is a process's state, such as Z for one that has ended and is not reaped, and its flags in the kernel.
func condition(pid int) (state byte, flags uint64) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, ppid, pgrp, session, tty, tpgid, flags
	if len(fields) < 7 {
		return 0, 0
	}
	flags, _ = strconv.ParseUint(string(fields[6]), 10, 64)
	return fields[0][0], flags
}

// leads reports whether a process is a task process that await will reap, and so the leader of a group of its own.
func leads(pid int) bool {
	_, leader := leaders.Load(pid)
	return leader
}

func carries(environ, mark []byte) bool {
	for pair := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(pair, mark) {
			return true
		}
	}
	return false
}

// gatherEvery is how often what has ended is looked for while its process lives on.
const gatherEvery = time.Second

// gather reaps orphans that have ended. Nobody else does before the end of the process that they come from, and one that lives on
// may leave some with every item.
func gather() {
	var info unix.Siginfo
	if unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) != nil || info.Signo == 0 {
		return // none has ended, as mostly
	}
	kin.Lock()
	defer kin.Unlock()
	for _, pid := range children() {
		// Others were started elsewhere in this program, and are awaited there.
		if leads(pid) || group(pid) == syscall.Getpgrp() || !descends(pid) {
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
		list, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func group(pid int) int {
	group, err := syscall.Getpgid(pid)
	if err != nil {
		return pid
	}
	return group
}
