package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

const stoppedPy = `
import os, time

def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f: return f.read().rpartition(") ")[2][0] not in "ZX"
    except OSError: return False
def tell(*words):
    with open(os.environ["CALLS"], "a") as f: f.write(" ".join(map(str, words)) + "\n")
def careful(i):
    # looks whether somebody else runs the same item at this moment
    tell("begin", i, os.getpid())
    begun = {}
    with open(os.environ["CALLS"]) as f:
        for word, item, pid in map(str.split, f):
            if item == str(i): begun[pid] = word == "begin"
    for pid, runs in begun.items():
        if runs and pid != str(os.getpid()) and alive(pid): tell("overlap", i, pid)
    time.sleep(float(os.environ["SECONDS"]))
    while os.path.exists(os.environ["HOLD"] + str(i)): time.sleep(0.005)
    tell("end", i, os.getpid())
    return i
`

// A worker that is stopped, not killed, loses its chunks to others after a while. When it
// goes on it drops what was left of them, so that each item counts once, and serves as
// before.
func TestStopped_AWorkerThatIsStoppedRecordsNothingTwice(t *testing.T) {
	t.Parallel()
	h := newCareful(t, 2, 0.4)
	first := h.worker()
	const n = 100
	running := h.begin("map", "careful", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--option", "chunk=25", "--out", "r.jsonl")
	h.busy(first)
	second := h.worker()
	h.busy(second)

	lost := h.busy(first)
	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	taken := map[string]bool{}
	for _, item := range lost {
		taken[item] = true
	}
	rig.Wait(t, func() bool {
		for _, item := range h.runners(second) {
			if taken[item] {
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "the other worker takes over")
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))

	require.Equal(t, 0, running.code(), running.stderr.String())
	h.complete("r.jsonl", n)
	require.Equal(t, 1, strings.Count(first.stderr.String(), "; what ran on it is given up, since its items may run elsewhere"), first.stderr.String())
	require.NotContains(t, first.stderr.String(), "a call failed", "nobody is to blame")

	stop(t, second)
	h.write("calls", "")
	h.run(0, "map", "careful", "--range", "0:4", "--pool", "cpu", "--out", "again.jsonl")
	h.complete("again.jsonl", 4)
	require.Equal(t, 4, strings.Count(h.file("calls"), "end "))
	stop(t, first)
}

// newCareful is a host whose workers have the task careful, which takes so many seconds,
// and longer while the item is held.
func newCareful(t *testing.T, slots int, seconds float64) *host {
	t.Helper()
	h := newHost(t)
	h.write("stopped.py", stoppedPy)
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: %d}]\ncontact: 2s\n"+
		"tasks: {careful: {python: \"stopped.py:careful\", env: {CALLS: %q, HOLD: %q, SECONDS: \"%g\"}}}\n",
		h.path("store"), slots, h.path("calls"), h.path("hold"), seconds))
	return h
}

// busy waits until both slots of a worker run items, and returns which, by process.
func (h *host) busy(worker *program) (items map[int]string) {
	h.t.Helper()
	rig.Wait(h.t, func() bool { items = h.runners(worker); return len(items) == 2 }, time.Minute, 2*time.Millisecond)
	return items
}

// runners are the worker's task processes that run an item of the task careful, with the
// item.
func (h *host) runners(worker *program) map[int]string {
	items := map[int]string{}
	for line := range strings.Lines(h.file("calls")) {
		words := strings.Fields(line)
		if len(words) != 3 || !strings.HasSuffix(line, "\n") {
			continue
		}
		pid, err := strconv.Atoi(words[2])
		require.NoError(h.t, err)
		switch words[0] {
		case "begin":
			items[pid] = words[1]
		case "end":
			delete(items, pid)
		}
	}
	for pid := range items {
		if parent(pid) != worker.Process.Pid {
			delete(items, pid)
		}
	}
	return items
}
