package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// soaking skips a test that takes minutes unless GPUMUX_SOAK is set, as `make soak` does.
// Its value, unless it is 1, seeds what is random, so that a run can be repeated.
func soaking(t *testing.T) *rand.Rand {
	t.Helper()
	value := os.Getenv("GPUMUX_SOAK")
	if value == "" {
		rig.Because(t, rig.Minutes, "make soak runs it")
	}
	seed, err := strconv.ParseUint(value, 10, 64)
	require.NoError(t, err, "GPUMUX_SOAK is 1 or a seed")
	if seed == 1 {
		seed = rand.Uint64()
	}
	return fromSeed(t, seed)
}

// fromSeed is chance that can be had again, as far as timing lets it.
func fromSeed(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d; GPUMUX_SOAK=%d repeats the choices of a soak", seed, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// TestSoak_KillsAtRandom kills workers and the server twenty times in one map, whatever
// they are doing.
func TestSoak_KillsAtRandom(t *testing.T) {
	chance := soaking(t)
	const n, rounds = 5000, 20
	h := newHost(t)
	server := h.server()
	workers := []*program{h.worker(), h.worker()}
	began := time.Now()
	id := strings.TrimSpace(h.run(0, "map", "step", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--detach").stdout.String())
	killed := map[string]int{}
	for round := range rounds {
		at := n*(round+1)/(rounds+2) + chance.IntN(n/(rounds+2))
		rig.Wait(t, func() bool { count, _ := h.ran(); return len(count) >= at }, 3*time.Minute, 5*time.Millisecond,
			"round %d: %d items have run", round, at)
		switch victim := chance.IntN(3); victim {
		case 2:
			require.NoError(t, server.Process.Kill())
			<-server.ended
			server = h.server()
			killed["server"]++
		default:
			pids := h.taskProcesses(workers[victim])
			require.NoError(t, workers[victim].Process.Kill())
			<-workers[victim].ended
			for _, pid := range pids {
				require.Eventually(t, func() bool { return gone(pid) }, time.Minute, 2*time.Millisecond)
			}
			workers[victim] = h.worker()
			killed["worker"]++
		}
	}
	var summary struct{ Items, Succeeded, Failed int }
	require.NoError(t, json.Unmarshal([]byte(h.run(0, "wait", id, "--json").stdout.String()), &summary))
	elapsed := time.Since(began)
	require.Equal(t, n, summary.Succeeded)
	require.Zero(t, summary.Failed)
	h.run(0, "results", id, "--out", "r.jsonl")
	h.complete("r.jsonl", n)
	count, _ := h.ran()
	require.Len(t, count, n)
	again := 0
	for item, times := range count {
		require.LessOrEqual(t, times, 1+killed["worker"], "item %s", item)
		again += times - 1
	}
	require.LessOrEqual(t, again, killed["worker"]*2*50, "items that ran again")
	for _, w := range workers {
		require.NoError(t, w.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 0, w.code(), w.stderr.String())
	}
	require.Empty(t, slices.DeleteFunc(children(t, h.dir), func(command string) bool { return !strings.Contains(command, "main.py") }))
	t.Logf("%d items in %s with %d workers and %d servers killed: each result once, %d items ran again",
		n, elapsed.Round(time.Second/10), killed["worker"], killed["server"], again)
}

// taskProcesses are the children of a worker that run Python.
func (h *host) taskProcesses(worker *program) []int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(h.t, err)
	var pids []int
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if command, _ := os.ReadFile(file); parent(pid) == worker.Process.Pid && strings.Contains(string(command), "main.py") {
			pids = append(pids, pid)
		}
	}
	return pids
}
