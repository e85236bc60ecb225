package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/storetest"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/test/programtest"
)

const faultsPy = `
import os, time

def step(i):
    time.sleep(0.02)
    with open(os.environ["CALLS"], "a") as f: f.write(f"{i} {os.getpid()}\n")
    return i
`

// host is a shell whose workers are processes that tests kill, at the server of all tests
// or at one of its own.
type host struct {
	*shell
	address, namespace string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{shell: newShell(t), address: devservertest.Run(t).Address(), namespace: devservertest.Namespace(t)}
	h.write("faulty.py", faultsPy)
	h.write("calls", "")
	// A killed worker is noticed soon.
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: 2}]\ncontact: 2s\n"+
		"tasks: {step: {python: \"faulty.py:step\", env: {CALLS: %q}}}\n", h.path("store"), h.path("calls")))
	h.env = append(h.env, "TEMPORAL_ADDRESS="+h.address, "TEMPORAL_NAMESPACE="+h.namespace)
	return h
}

// server starts a Temporal of the host's own on its data folder, and waits until it
// answers. Killed and started again it has the same address.
func (h *host) server(flags ...string) *program {
	h.t.Helper()
	if h.namespace != "default" {
		h.address, h.namespace = "127.0.0.1:"+programtest.FreePort(h.t), "default"
		h.env = append(h.env, "TEMPORAL_ADDRESS="+h.address, "TEMPORAL_NAMESPACE="+h.namespace)
	}
	_, port, _ := strings.Cut(h.address, ":")
	p := h.begin(append([]string{"dev", "--no-worker", "--headless", "--port", port, "--data", h.path("data")}, flags...)...)
	p.ready()
	return p
}

// client connects to the host's server.
func (h *host) client() client.Client {
	h.t.Helper()
	return dial(h.t, client.Options{HostPort: h.address, Namespace: h.namespace})
}

func (h *host) worker() *program { return h.begin("worker", "-f", "worker.yaml") }

// ran is how often each item ran to its end, and who ran it last.
func (h *host) ran() (count map[string]int, pids map[int]bool) { return h.ranIn("calls") }

func (h *host) ranIn(calls string) (count map[string]int, pids map[int]bool) {
	count, pids = map[string]int{}, map[int]bool{}
	for line := range strings.Lines(h.file(calls)) {
		item, pid, whole := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n, err := strconv.Atoi(pid); whole && err == nil {
			count[item]++
			pids[n] = true
		}
	}
	return count, pids
}

// complete checks the results file: every item once, in order, with its value.
func (h *host) complete(name string, n int) {
	h.t.Helper()
	lines := h.lines(h.file(name))
	require.Len(h.t, lines, n)
	for i, line := range lines {
		require.Equal(h.t, strconv.Itoa(i), string(line["value"]))
	}
}

// parent is the process that started pid, 0 when pid is gone.
func parent(pid int) int {
	fields := stat(pid)
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	fields := stat(pid)
	return len(fields) == 0 || fields[0] == "Z" || fields[0] == "X"
}

// stat is what the kernel says of a process behind its name, nil when it is gone.
func stat(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

// stored are the items that have a result in such folders of the store.
func (h *host) stored(pattern string) map[string]bool {
	h.t.Helper()
	st, err := store.Open(h.t.Context(), "file://"+h.path("store"))
	require.NoError(h.t, err)
	defer st.Close()
	folders, err := filepath.Glob(h.path(pattern))
	require.NoError(h.t, err)
	items := map[string]bool{}
	for _, folder := range folders {
		folder, err = filepath.Rel(h.path("store"), folder)
		require.NoError(h.t, err)
		for _, span := range storetest.Runs(h.t, st, folder) {
			for i := span.Start; i < span.End; i++ {
				items[strconv.FormatInt(i, 10)] = true
			}
		}
	}
	return items
}

// A worker that is killed loses the items that it ran and those that it had not stored
// yet; another one takes over.
func TestFaults_AKilledWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first := h.worker()
	const n = 600
	running := h.begin("map", "step", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--out", "r.jsonl", "--store", "file://"+h.path("store"))
	stored := func() map[string]bool { return h.stored("store/maps/*/*/*.parts") }
	rig.Wait(t, func() bool { count, _ := h.ran(); return len(count) > 100 && len(stored()) > 0 }, time.Minute, 5*time.Millisecond)
	_, pids := h.ran()
	pids = maps.Collect(func(yield func(int, bool) bool) {
		for pid := range pids {
			if parent(pid) == first.Process.Pid && !yield(pid, true) {
				return
			}
		}
	})
	require.Len(t, pids, 2, "both slots are busy")
	second := h.worker()
	require.NoError(t, first.Process.Kill())
	require.Equal(t, -1, first.code())
	kept := stored()
	for pid := range pids {
		rig.Wait(t, func() bool { return gone(pid) }, time.Minute, 2*time.Millisecond, "task process %d outlived its worker", pid)
	}
	require.Equal(t, 0, running.code(), running.stderr.String())
	h.complete("r.jsonl", n)
	count, _ := h.ran()
	require.Len(t, count, n)
	again := 0
	for item, times := range count {
		require.LessOrEqual(t, times, 2, "item %s", item)
		require.True(t, times == 1 || !kept[item], "item %s was stored and ran again", item)
		again += times - 1
	}
	t.Logf("%d items were stored when the worker was killed; %d of %d ran again", len(kept), again, n)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, second.code(), second.stderr.String())
	require.Empty(t, slices.DeleteFunc(children(t, h.dir), func(command string) bool { return !strings.Contains(command, "main.py") }))
}

// A server that is killed costs nothing but time: workers go on with what they run and
// tell it when it is back.
func TestFaults_AKilledServerGoesOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	server := h.server()
	h.worker()
	const n = 600
	id := strings.TrimSpace(h.run(0, "map", "step", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--detach").stdout.String())
	for _, at := range []int{100, 300} {
		rig.Wait(t, func() bool { count, _ := h.ran(); return len(count) > at }, time.Minute, 5*time.Millisecond)
		require.NoError(t, server.Process.Kill())
		<-server.ended
		server = h.server()
	}
	var summary struct{ Items, Succeeded, Failed int }
	require.NoError(t, json.Unmarshal([]byte(h.run(0, "wait", id, "--json").stdout.String()), &summary))
	require.Equal(t, n, summary.Succeeded)
	require.Zero(t, summary.Failed)
	h.run(0, "results", id, "--out", "r.jsonl")
	h.complete("r.jsonl", n)
	count, pids := h.ran()
	require.Len(t, count, n)
	for item, times := range count {
		require.Equal(t, 1, times, "item %s", item)
	}
	require.Len(t, pids, 2, "the task processes lived on")
}
