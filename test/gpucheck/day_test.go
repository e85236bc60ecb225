package gpucheck

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// A map that is run again with the memory that it was told would do needs no more.
func TestGPU_SuggestedMemory(t *testing.T) {
	for _, framework := range []string{"torch", "jax", "cupy"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			m.seen()
			// The largest first: JAX gives nothing back, and would take memory for it beside that
			// of smaller ones.
			var items []object
			for _, size := range []int{3 * gib, 2 * gib, gib} {
				items = append(items, object{"framework": framework, "bytes": size})
			}
			m.mapped(0, "live", items, "--slots", "1")
			output := regexp.MustCompile(`peak per item: .*; memory: (\S+) would do`).FindStringSubmatch(m.output)
			require.Len(t, output, 2, "no memory is suggested")
			var enough gpumux.Size
			require.NoError(t, enough.UnmarshalText([]byte(output[1])))
			m.figure("%s: %s", framework, output[0])
			for _, r := range m.mapped(0, "live", items, "--slots", "2", "--memory", output[1]) {
				held := value[struct{ Memory int64 }](t, r)
				require.Equal(t, int64(enough), held.Memory, "item %d did not fit what would do, and had the whole device", r.Index)
			}
		})
	}
}

// What a map is told of its GPU is what the driver counts.
func TestGPU_WhatItDid(t *testing.T) {
	t.Run("torch", func(t *testing.T) {
		m := onGPU(t)
		m.needs("torch")
		before, err := m.inventory.Load(m.device.UUID)
		if errors.Is(err, errors.ErrUnsupported) {
			rig.Because(t, rig.SMI, "the driver does not tell what the device does")
		}
		require.NoError(t, err)
		began := time.Now()
		m.mapped(0, "busy", slices.Repeat([]object{{"seconds": 0.5}}, 20), "--slots", "1")
		took := time.Since(began).Seconds()
		after, err := m.inventory.Load(m.device.UUID)
		require.NoError(t, err)
		line := regexp.MustCompile(`GPU +(\d+)% busy at (\d+) W, .*`).FindStringSubmatch(m.output)
		require.Len(t, line, 3, "nothing is said of the GPU")
		m.figure("20 items of half a second of products: %s; the driver counted %.0f J in %.0f s", line[0], after.Energy-before.Energy, took)
		percent, _ := strconv.Atoi(line[1])
		watts, _ := strconv.ParseFloat(line[2], 64)
		require.Greater(t, percent, 40, "the import aside it computes all the time")
		require.Greater(t, watts, 0.5*(after.Energy-before.Energy)/took)
		require.Less(t, 10*watts, 1.2*(after.Energy-before.Energy))
	})
}

// Four processes that import PyTorch at once take longer than one; how much longer is a
// figure.
func TestGPU_ImportsAtOnce(t *testing.T) {
	t.Run("torch", func(t *testing.T) {
		m := onGPU(t).script("imports.py")
		m.needs("torch")
		reported := map[int]string{}
		for _, slots := range []int{1, 4} {
			folder := filepath.Join(m.dir, strconv.Itoa(slots))
			require.NoError(t, os.Mkdir(folder, 0o700))
			items := slices.Repeat([]object{{"folder": folder, "count": slots}}, slots)
			began := time.Now()
			results := m.mapped(0, "imported", items, "--slots", strconv.Itoa(slots), "--memory", "4GiB", "--option", "chunk=1")
			took, longest, threads := time.Since(began).Seconds(), 0.0, ""
			pids := map[int]bool{}
			for _, r := range results {
				got := value[struct {
					PID     int
					Seconds float64
					Threads string
				}](t, r)
				pids[got.PID], longest, threads = true, max(longest, got.Seconds), got.Threads
			}
			require.Len(t, pids, slots, "a process per slot")
			reported[slots] = strconv.FormatFloat(longest, 'f', 1, 64) + " s, the map " + strconv.FormatFloat(took, 'f', 1, 64) +
				" s, OMP_NUM_THREADS " + strconv.Quote(threads)
		}
		m.figure("importing PyTorch in one slot takes %s; in four at once %s", reported[1], reported[4])
	})
}

// In a container with process numbers of its own some drivers list processes without
// their memory. The worker then names no watch, and says why.
func TestGPU_ProcessNumbersOfItsOwn(t *testing.T) {
	m := onGPU(t)
	m.within = namespace(t)
	r := m.mapped(0, "listing", []object{{"bytes": gib}}, "--slots", "1", "--memory", "4GiB")[0]
	got := value[struct {
		PID  int
		Rows [][2]any
	}](t, r)
	listed := uint64(0)
	for _, row := range got.Rows {
		if number, ok := row[0].(float64); ok && int(number) == got.PID {
			text, _ := row[1].(string)
			listed, _ = strconv.ParseUint(text, 10, 64) // else it stays 0
		}
	}
	means := regexp.MustCompile(`enforced by: [^"\n]*`).FindString(m.output)
	m.figure("driver %s, in a PID namespace: process %d finds %v in the driver's list; %s", m.device.Driver, got.PID, got.Rows, means)
	require.NotEmpty(t, means)
	if listed >= gib && listed < 1<<63 {
		require.Contains(t, means, "watch every", "the driver lists the memory of processes here, so it can be watched")
	} else {
		require.NotContains(t, means, "watch every", "the driver lists nothing here that could be watched")
	}
}

// namespace is the command that gives another one process numbers of its own.
func namespace(t *testing.T) []string {
	t.Helper()
	path, err := exec.LookPath("unshare")
	if err != nil {
		rig.Because(t, rig.Tool, err)
	}
	var output []string
	for _, user := range [][]string{{"--user", "--map-root-user"}, {}} {
		argv := append(append([]string{path}, user...), "--pid", "--fork", "--kill-child", "--mount-proc")
		out, err := exec.Command(argv[0], append(argv[1:], "true")...).CombinedOutput()
		if err == nil {
			return argv
		}
		output = append(output, strings.TrimSpace(string(out))+" ("+err.Error()+")")
	}
	rig.Because(t, rig.Mount, "no PID namespace may be made here: ", strings.Join(output, "; "))
	return nil
}

// A script that sets the variable that JAX calls deprecated runs in a slot, within its
// budget.
func TestGPU_OldVariable(t *testing.T) {
	t.Run("jax", func(t *testing.T) {
		m := onGPU(t).script("oldjax.py")
		m.needs("jax")
		for i, r := range m.mapped(0, "add_up", []object{{"number": 0}, {"number": 1}}, "--slots", "1", "--memory", "4GiB") {
			got := value[struct {
				Sum   float64
				Limit int64
			}](t, r)
			require.InDelta(t, float64(4096*i), got.Sum, 0.5)
			require.LessOrEqual(t, got.Limit, int64(4*gib), "the smaller of the slot's share and the script's holds")
			m.figure("XLA_PYTHON_CLIENT_MEM_FRACTION=.5 in a slot of 4 GiB: JAX may take %s", gpumux.Size(got.Limit))
		}
	})
}

// Two workers on one GPU run at the same time. What passes its budget in one is ended,
// and the other's items go on.
func TestGPU_SecondWorker(t *testing.T) {
	m := onGPU(t)
	m.seen()
	before := m.used()
	folder, log := filepath.Join(m.dir, "here"), filepath.Join(m.dir, "lived")
	require.NoError(t, os.Mkdir(folder, 0o700))
	other := m.script("tasks.py")
	var neighbours []gpumux.Result
	var running sync.WaitGroup
	running.Go(func() {
		items := slices.Repeat([]object{{"folder": folder, "count": 3, "bytes": gib, "seconds": 3}}, 2)
		neighbours = other.mapped(0, "together", items, "--slots", "2", "--memory", "3GiB", "--option", "chunk=1")
	})
	items := []object{{"folder": folder, "count": 3, "bytes": gib, "seconds": 0, "over": 3 * gib, "log": log}}
	results := m.mapped(1, "together", items, "--memory", "2GiB", "--slots", "1")
	running.Wait()
	require.Len(t, neighbours, 2, "the other worker's map failed")
	for _, r := range neighbours {
		value[int](t, r)
	}
	fault := results[0].Fault
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultBudget, fault.Kind, fault.Error())
	longest, _ := lived(t, log)
	m.figure("a second worker on the GPU: three processes at once, the one past its budget ended after %d ms, the others went on",
		longest.Milliseconds())
	m.returns(before)
}

// Under NVIDIA's MPS an illegal address in one of three slots costs the item that did
// it: its neighbours, whose contexts it ruined, succeed, although an item may raise only
// once.
func TestGPU_MPSBlame(t *testing.T) {
	m := onGPU(t)
	if _, err := exec.LookPath(mps.Program); err != nil {
		rig.Because(t, rig.Tool, mps.Program)
	}
	if m.device.Kind != gpu.KindGPU {
		rig.Because(t, rig.GPU, "only a MIG instance, on which MPS keeps to no limit")
	}
	t.Setenv(mps.PipeVariable, "")
	before := m.used()
	const count, bad = 60, 20
	log := filepath.Join(m.dir, "ran")
	items := make([]object, count)
	for i := range items {
		items[i] = object{"framework": "driver", "number": i, "bad": bad, "log": log}
	}
	results := m.mapped(1, "ruin", items, "--sharing", "mps", "--slots", "3", "--memory", "3GiB", "--attempts", "1", "--option", "chunk=6")
	fault := results[bad].Fault
	require.NotNil(t, fault, "the context was not ruined: %s", results[bad].Value)
	require.Equal(t, gpumux.FaultCrash, fault.Kind, fault.Error())
	require.Contains(t, strings.ToLower(fault.Message), "illegal")
	for i, r := range results {
		if i != bad {
			value[int](t, r)
		}
	}
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	tries := strings.Count(string(text), "\n")
	m.figure("MPS: %d items in 3 slots, %d faults of the one with an illegal address, %d runs of others again", count, fault.Attempts,
		tries-count+1-fault.Attempts)
	m.returns(before)
}

// Two frameworks in one process each keep to the budget, and the watch counts them
// together.
func TestGPU_TwoFrameworks(t *testing.T) {
	for _, second := range []string{"cupy", "jax"} {
		t.Run(second, func(t *testing.T) {
			m := onGPU(t)
			m.needs("torch")
			m.needs(second)
			m.seen()
			before := m.used()
			both := []string{"torch", second}
			r := m.mapped(0, "two", []object{{"frameworks": both, "bytes": gib, "seconds": 0.5}}, "--slots", "1", "--memory", "5GiB")
			got := value[struct{ Sums []float64 }](t, r[0])
			require.Equal(t, []float64{4096, 4096}, got.Sums)
			output := regexp.MustCompile(`peak per item: p50 \S+, p99 \S+, max (\S+) `).FindStringSubmatch(m.output)
			require.Len(t, output, 2, m.output)
			var largest gpumux.Size
			require.NoError(t, largest.UnmarshalText([]byte(output[1])))
			require.GreaterOrEqual(t, int64(largest), int64(2*gib), "the peak of both together")
			require.Less(t, int64(largest), int64(5*gib))
			// Each is within its own limit of 4 GiB, and both together are not.
			items := []object{{"frameworks": both, "bytes": 3 * gib, "seconds": 20}}
			fault := m.mapped(1, "two", items, "--slots", "1", "--memory", "5GiB")[0].Fault
			require.NotNil(t, fault)
			require.Equal(t, gpumux.FaultBudget, fault.Kind, fault.Error())
			m.figure("torch and %s in one process: peak %s with 1 GiB in each; with 3 GiB in each of a budget of 5 GiB: %s", second, largest, fault.Kind)
			m.returns(before)
		})
	}
}
