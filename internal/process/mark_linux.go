package process

import (
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

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
