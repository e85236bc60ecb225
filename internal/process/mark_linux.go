package process

import (
	"cmp"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A task process and its descendants have a number of their own as their soft limit on
// file locks: the digits of this program, then those of the process. Every fork and exec
// inherits it, and the kernel has not enforced it since Linux 2.4. So a daemon that
// leaves its group and its session and clears its environment keeps it.

// processNumbers is how many numbers a program has for its processes: their last six
// digits.
const processNumbers = 1_000_000

// program is the part of this program's numbers that all of them share. It is 0 where it
// may not set such limits.
var program = sync.OnceValue(func() uint64 {
	const first, end = 1_000_000_000_000, 4_000_000_000_000 // with the process's digits below 1<<62
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &limit) != nil || limit.Max < end*processNumbers ||
		unix.Setrlimit(unix.RLIMIT_LOCKS, &limit) != nil {
		return 0
	}
	return first + rand.Uint64N(end-first)
})

var processes atomic.Uint64

// newMark draws the number of a process, or 0 where there are none.
func newMark() uint64 {
	if program() == 0 {
		return 0
	}
	return program()*processNumbers + processes.Add(1)%processNumbers
}

// setMark marks a process, unless mark is 0. It fails where the program has another
// user's rights, such as sudo.
func setMark(pid int, mark uint64) {
	var limit unix.Rlimit
	if mark != 0 && unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) == nil {
		limit.Cur = mark
		_ = unix.Prlimit(pid, unix.RLIMIT_LOCKS, &limit, nil)
	}
}

// markOf reads a process's number, a zombie's too: 0 for one with another user's rights.
// It never waits for the process.
func markOf(pid int) uint64 {
	var limit unix.Rlimit
	_ = unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	return limit.Cur
}

// markScript marks itself as setMark does and becomes the program. Shells have different
// letters for the same limit.
const markScript = `ulimit -S -w "$1" 2>/dev/null || ulimit -S -x "$1" 2>/dev/null
shift
exec "$@"`

// markFirst makes a shell mark itself before it becomes the program, so that all
// descendants inherit the mark.
func markFirst(cmd *exec.Cmd, mark uint64) error {
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(cmd.Dir, path)
	}
	_, err := exec.LookPath(path) // the shell's own message is less clear
	if err := cmp.Or(cmd.Err, err); err != nil {
		return err
	}
	cmd.Args = append([]string{"sh", "-c", markScript, "gpumux", strconv.FormatUint(mark, 10), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return nil
}
