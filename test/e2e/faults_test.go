package e2e

import (
	"context"
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

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/storetest"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/workers/config"
)

const faultsPy = `
import os, signal, subprocess, time
import gpumux

def family(x):
    # one child in the group, one that left it; both ignore TERM, as does the task
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang = "trap '' TERM; while :; do sleep 1; done"
    near = subprocess.Popen(["sh", "-c", hang])
    far = subprocess.Popen(["sh", "-c", hang], start_new_session=True)
    with open(os.environ["CALLS"], "a") as f: f.write(f"{os.getpid()} {near.pid} {far.pid}\n")
    time.sleep(600)
def raises(x):
    # succeeds at the x-th try
    marker = os.path.join(os.environ["MARKERS"], f"{os.environ['MODE']}{x}")
    with open(marker, "a") as f: f.write("x")
    tries = os.path.getsize(marker)
    if tries < x: raise ValueError(f"try {tries} of {x}")
    return tries
@gpumux.batch(max=32)
def batch(xs):
    if 61 in xs:
        with open(os.path.join(os.environ["MARKERS"], "deaths"), "a") as f: f.write("x")
        os.abort()
    with open(os.environ["CALLS"], "a") as f: f.writelines(f"{x}\n" for x in xs)
    return xs
def step(i):
    time.sleep(0.02)
    with open(os.environ["CALLS"], "a") as f: f.write(f"{i} {os.getpid()}\n")
    return i
`

// faultTask adds a function of faultsPy to the tasks of a worker.
func (s *site) faultTask(c config.Config, function string, env ...string) config.Config {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "faulty.py"), []byte(faultsPy), 0o644))
	task := config.Task{Python: "faulty.py:" + function, Env: map[string]string{
		"CALLS": s.calls, "MARKERS": filepath.Join(s.dir, "markers"),
	}}
	for i := 0; i < len(env); i += 2 {
		task.Env[env[i]] = env[i+1]
	}
	c.Tasks[function] = task
	return c
}

// dying is a source of n items of which one in a hundred ends its process once and one in
// a thousand always.
func dying(n int) (lines string, always []int) {
	var b strings.Builder
	for i := range n {
		how := "never"
		switch {
		case i%1000 == 777:
			how = "always"
			always = append(always, i)
		case i%100 == 50:
			how = "once"
		}
		fmt.Fprintf(&b, "{\"i\":%d,\"die\":%q}\n", i, how)
	}
	return b.String(), always
}

func TestFaults_OneInAHundredDiesOnceAndOneInAThousandAlways(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	lines, always := dying(2000)
	sum, err := s.run(gpumux.MapInput{Task: "die", Source: s.source(lines), Ladder: []string{"cpu"}, Output: "maps/f/results.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 2000, sum.Items)
	require.EqualValues(t, 1998, sum.Succeeded)
	require.EqualValues(t, 2, sum.Failed)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 2}, sum.Faults)
	var failed []int
	for i, r := range s.results(sum) {
		if r.Fault != nil {
			failed = append(failed, i)
			require.Equal(t, gpumux.FaultCrash, r.Fault.Kind)
			require.Equal(t, "signal SIGKILL", r.Fault.Exit)
			require.True(t, r.Fault.Alone)
			deaths, err := os.ReadFile(filepath.Join(s.dir, "markers", strconv.Itoa(i)))
			require.NoError(t, err)
			require.Equal(t, len(deaths), r.Fault.Attempts, "each try killed its process")
			require.LessOrEqual(t, r.Fault.Attempts, 3, "given up after two deaths alone")
			continue
		}
		require.Equal(t, strconv.Itoa(i), string(r.Value))
	}
	require.Equal(t, always, failed)
	s.calledOnce(1998)
}

func TestFaults_ExceptionsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.serve(s.faultTask(s.config("cpu", 2), "raises", "MODE", string(mode)))
			sum, err := s.run(gpumux.MapInput{Task: "raises", Range: &gpumux.Range{Start: 1, End: 7}, Ladder: []string{"cpu"}, Attempts: 4, Mode: mode})
			require.NoError(t, err)
			require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 2}, sum.Faults)
			for i, r := range s.results(sum) {
				if i < 4 {
					require.Equal(t, strconv.Itoa(i+1), string(r.Value))
					continue
				}
				require.Equal(t, 4, r.Fault.Attempts)
				require.Equal(t, fmt.Sprintf("try 4 of %d", i+1), r.Fault.Message)
			}
		})
	}
}

func TestFaults_CancelAndTimeoutReachGrandchildren(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancel", "timeout"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.serve(s.faultTask(s.config("cpu", 1), "family"))
			in := gpumux.MapInput{Task: "family", Items: items(1), Ladder: []string{"cpu"}}
			if how == "timeout" {
				in.Timeout = gpumux.Duration(2 * time.Second)
			}
			run := s.start(in)
			if how == "cancel" {
				rig.Wait(t, func() bool { return len(s.pids()) == 3 }, time.Minute, 5*time.Millisecond)
				for _, pid := range s.pids() {
					require.NoError(t, syscall.Kill(pid, 0))
				}
				require.NoError(t, s.client.CancelWorkflow(t.Context(), run.GetID(), ""))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var sum gpumux.Summary
			err := run.Get(ctx, &sum)
			if how == "cancel" {
				require.ErrorContains(t, err, "canceled")
				require.Len(t, s.pids(), 3)
			} else {
				require.NoError(t, err)
				require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 1}, sum.Faults)
				require.Len(t, s.pids(), 6, "tried twice, alone each time")
			}
			for _, pid := range s.pids() {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d lives", pid)
			}
		})
	}
}

// pids are the processes that the task family noted.
func (s *site) pids() []int {
	data, err := os.ReadFile(s.calls)
	require.NoError(s.t, err)
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		require.NoError(s.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// host is a shell with a Temporal server and workers as processes of their own, for tests
// that kill them.
type host struct {
	*shell
	port string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{shell: newShell(t), port: freePort(t)}
	h.write("faulty.py", faultsPy)
	h.write("calls", "")
	// A killed worker is noticed soon.
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: 2}]\ncontact: 2s\n"+
		"tasks: {step: {python: \"faulty.py:step\", env: {CALLS: %q}}}\n", h.path("store"), h.path("calls")))
	h.env = append(h.env, "TEMPORAL_ADDRESS=127.0.0.1:"+h.port)
	return h
}

// server starts Temporal on the data folder and waits until it answers.
func (h *host) server() *program {
	h.t.Helper()
	p := h.begin("dev", "--no-worker", "--headless", "--port", h.port, "--data", h.path("data"))
	p.ready()
	return p
}

func (h *host) worker() *program { return h.begin("worker", "-f", "worker.yaml") }

// ran is how often each item ran to its end, and who ran it last.
func (h *host) ran() (count map[string]int, pids map[int]bool) {
	count, pids = map[string]int{}, map[int]bool{}
	for line := range strings.Lines(h.file("calls")) {
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

// A worker that is killed loses the items that it ran and those that it had not stored
// yet; another one takes over.
func TestFaults_AKilledWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.server()
	first := h.worker()
	const n = 600
	running := h.begin("map", "step", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--out", "r.jsonl", "--store", "file://"+h.path("store"))
	st, err := store.Open(t.Context(), "file://"+h.path("store"), nil)
	require.NoError(t, err)
	defer st.Close()
	stored := func() map[string]bool {
		items := map[string]bool{}
		parts, err := filepath.Glob(h.path("store/maps/*/*/*.parts"))
		require.NoError(t, err)
		for _, folder := range parts {
			folder, err = filepath.Rel(h.path("store"), folder)
			require.NoError(t, err)
			spans := storetest.Runs(t, st, folder)
			for _, span := range spans {
				for i := span.Start; i < span.End; i++ {
					items[strconv.FormatInt(i, 10)] = true
				}
			}
		}
		return items
	}
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
		require.Eventually(t, func() bool { return gone(pid) }, time.Minute, 2*time.Millisecond, "task process %d outlived its worker", pid)
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

// An item that ends its process takes the rest of its micro-batch with it. It is found in
// halves, not by running each alone.
func TestFaults_ACulpritInAMicroBatchIsFound(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(s.faultTask(s.config("cpu", 1), "batch"))
	sum, err := s.run(gpumux.MapInput{Task: "batch", Range: &gpumux.Range{End: 200}, Ladder: []string{"cpu"}, Chunk: 100})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
	require.EqualValues(t, 199, sum.Succeeded)
	f := s.results(sum)[61].Fault
	require.NotNil(t, f)
	require.True(t, f.Alone)
	deaths, err := os.ReadFile(filepath.Join(s.dir, "markers", "deaths"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(deaths), 1+5+2, "once in a batch of 32, by halves, and alone twice")
	s.calledOnce(199)
}
