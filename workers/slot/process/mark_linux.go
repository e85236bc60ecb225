package process

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Task processes carry two marks, by which their descendants are found: tokens in the environment, and numbers in the limit on file
// locks, which every fork and exec inherits and the kernel has not enforced since Linux 2.4. A program that clears its environment,
// as daemons do, keeps the numbers: only a deliberate call changes them, and only to smaller ones. The hard limit is the worker's
// number, the soft limit the process's.

// proc is where the system shows its processes.
const proc = "/proc"

// leastNumber is the smallest number that nobody would take for a limit.
const leastNumber = 1 << 40

// workerNumber draws the worker's number, or 0 where this process may not set one that no limit has.
func workerNumber() uint64 {
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &own) != nil {
		return 0
	}
	most := min(own.Max, 1<<62)
	if most < 4*leastNumber {
		return 0
	}
	return most/2 + rand.Uint64N(most/2)
}

// processNumber draws the number of a process of a worker.
func processNumber(worker uint64) uint64 {
	if worker == 0 {
		return 0
	}
	return worker/2 + rand.Uint64N(worker/2)
}

// setNumbers marks a process that has just started with the numbers of its worker and itself.
func setNumbers(pid int, worker, number uint64) error {
	if number == 0 {
		return nil
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: number, Max: worker}, nil); err != nil {
		return fmt.Errorf("mark process %d with a limit on file locks: %w", pid, err)
	}
	return nil
}

// numbered reports whether a process has the number of a mark, or of another process of the same worker; known is false when neither
// can be told. It never waits for the process.
func numbered(pid int, m mark) (ours, theirs, known bool) {
	if m.number == 0 {
		return false, false, false
	}
	soft, hard, known := numbers(pid)
	ours = known && soft == m.number
	return ours, !ours && hard == m.worker && soft >= m.worker/2 && soft < m.worker, known
}

// descends reports whether a process has the number of any worker.
func descends(pid int) bool {
	_, hard, _ := numbers(pid)
	return hard >= leastNumber
}

// numbers are a process's limits on file locks, 0 for none.
func numbers(pid int) (soft, hard uint64, known bool) {
	limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	for line := range bytes.Lines(limits) {
		rest, ok := bytes.CutPrefix(line, []byte("Max file locks"))
		fields := bytes.Fields(rest)
		if !ok || len(fields) < 2 {
			continue
		}
		soft, _ = strconv.ParseUint(string(fields[0]), 10, 64)
		hard, _ = strconv.ParseUint(string(fields[1]), 10, 64)
		return soft, hard, true
	}
	return 0, 0, false
}
