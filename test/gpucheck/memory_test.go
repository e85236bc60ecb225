package gpucheck

import (
	"context"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// reserve is what gpumux leaves of a budget of 4 GiB for the CUDA context and the
// libraries, until it is measured.
const reserve = gib

// A framework refuses by itself what its slot's budget has no room for, and hands out
// most of what there is room for.
func TestGPU_Caps(t *testing.T) {
	const budget, piece = 4 * gib, 128 * mib
	for _, framework := range []string{"torch", "jax", "cupy"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			results := m.mapped(0, "fill", []object{{"framework": framework, "piece": piece}}, "--memory", "4GiB", "--slots", "2")
			got := value[struct {
				Bytes   int64
				Refusal string
			}](t, results[0])
			m.figure("%s handed out %s of a budget of 4 GiB, then said: %.100s", framework, gpumux.Size(got.Bytes), got.Refusal)
			require.LessOrEqual(t, got.Bytes, int64(budget-reserve))
			require.Greater(t, got.Bytes, int64(budget-reserve)/2)
		})
	}
}

// The memory that items needed is what was live, and the context: a small item after a
// large one needs little, whatever is cached.
func TestGPU_PeaksAreWhatWasLive(t *testing.T) {
	for _, framework := range []string{"torch", "jax", "cupy"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			m.seen()
			items := []object{{"framework": framework, "bytes": 4 * gib, "seconds": 0.5}}
			for range 20 {
				items = append(items, object{"framework": framework, "bytes": 256 * mib, "seconds": 0.05})
			}
			m.mapped(0, "hold", items, "--slots", "1", "--option", "chunk="+strconv.Itoa(len(items)))
			output := regexp.MustCompile(`peak per item: p50 (\S+), p99 \S+, max (\S+);`).FindStringSubmatch(m.output)
			require.Len(t, output, 3, m.output)
			m.figure("%s: 256 MiB after 4 GiB in one process: %s", framework, output[0])
			var half, largest gpumux.Size
			require.NoError(t, half.UnmarshalText([]byte(output[1])))
			require.NoError(t, largest.UnmarshalText([]byte(output[2])))
			require.GreaterOrEqual(t, int64(largest), int64(4*gib))
			require.Less(t, int64(largest), int64(6*gib))
			if framework == "torch" { // the others cannot be reset, or tell no peak
				require.Less(t, int64(half), int64(2*gib))
			}
		})
	}
}

// What no framework's cap sees is seen by the watch, which ends the process.
func TestGPU_BudgetOverrun(t *testing.T) {
	m := onGPU(t)
	before := m.used()
	m.seen()
	m.returns(before)
	log := filepath.Join(m.dir, "lived")
	items := []object{{"bytes": 3 * gib, "log": log}}
	fault := m.mapped(1, "overrun", items, "--memory", "2GiB", "--slots", "1")[0].Fault
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultBudget, fault.Kind, fault.Error())
	require.Equal(t, int64(2*gib), fault.Budget)
	require.GreaterOrEqual(t, fault.Peak, int64(3*gib))
	require.Equal(t, m.device.UUID, fault.Device)
	require.NotEmpty(t, fault.Hint)
	longest, tries := lived(t, log)
	m.figure("ended %d ms after passing the budget, the longest of %d tries (goal 500 ms)", longest.Milliseconds(), tries)
	require.Less(t, longest, 5*time.Second)
	m.returns(before)
}

// A task of a slot on the CPU finds the GPU, and is ended for it.
func TestGPU_AnotherDevice(t *testing.T) {
	m := onGPU(t)
	m.seen()
	runtime, err := runtimes.Python(filepath.Join(m.dir, "runtime"))
	require.NoError(t, err)
	placements, _, err := config.Config{
		Store: "file://" + m.dir, Pools: []config.Pool{{Name: "cpu", Devices: gpu.Selection{"cpu"}}},
		Tasks: map[string]config.Task{"wander": {Python: m.tasks + ":wander"}},
	}.Plan(m.inventory)
	require.NoError(t, err)
	keeper, err := memory.New(placements, m.inventory, nil, zap.NewNop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { keeper.Run(ctx) })
	defer watching.Wait()
	defer cancel()
	o := slot.Options{Name: "cpu/0", Device: gpu.CPU, Runtime: runtime, Env: map[string]string{"CUDA_VISIBLE_DEVICES": ""}}
	keeper.Confine(&o, "cpu")
	s := slot.New(o)
	defer func() { require.NoError(t, s.Stop(context.Background())) }()
	log := filepath.Join(m.dir, "lived")
	item, err := json.Marshal(object{"device": m.device.UUID, "bytes": gib, "log": log})
	require.NoError(t, err)
	task := launch.Task{Name: "wander", Python: m.tasks + ":wander", Interpreter: python(), Dir: filepath.Dir(m.tasks), PassEnv: []string{"PYTHONPATH"}}
	err = s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: one(item)}})
	var fault *gpumux.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, gpumux.FaultBadInput, fault.Kind, fault.Error())
	require.Contains(t, fault.Message, m.device.UUID)
	longest, _ := lived(t, log)
	m.figure("ended %d ms after taking memory of a GPU that was not its slot's", longest.Milliseconds())
}

// lived reads the log of the task overrun: the longest time that it went on after it had
// passed the budget.
func lived(t *testing.T, path string) (longest time.Duration, tries int) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "taken" {
			tries++
			continue
		}
		if seconds, err := strconv.ParseFloat(rest, 64); err == nil { // else the process died in the middle of the line
			longest = max(longest, time.Duration(seconds*float64(time.Second)))
		}
	}
	require.Positive(t, tries)
	return longest, tries
}

// A slot that has replaced its process gives back all that the old one held before it
// takes the next item.
func TestGPU_RecycledProcessGivesBack(t *testing.T) {
	m := onGPU(t)
	runtime, err := runtimes.Python(filepath.Join(m.dir, "runtime"))
	require.NoError(t, err)
	task := launch.Task{
		Name: "hold", Python: m.tasks + ":hold", Interpreter: python(), Dir: filepath.Dir(m.tasks), PassEnv: []string{"PYTHONPATH"}, Recycle: 1,
	}
	s := slot.New(slot.Options{
		Name: "gpu/0", Device: m.device.UUID, Runtime: runtime,
		Env: map[string]string{"CUDA_VISIBLE_DEVICES": m.device.UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
	})
	defer func() { require.NoError(t, s.Stop(context.Background())) }()
	before := m.used()
	var longest time.Duration
	const recycles = 10
	pids := map[int]bool{}
	for range recycles {
		item, err := json.Marshal(object{"framework": "driver", "bytes": gib})
		require.NoError(t, err)
		var done calls.Done
		require.NoError(t, s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: one(item), OnDone: func(d calls.Done) { done = d }}}))
		pids[value[struct{ PID int }](t, done.Result).PID] = true
		require.NoError(t, s.Clear(t.Context()))
		took, _ := m.returns(before)
		longest = max(longest, took)
	}
	require.Len(t, pids, recycles, "a process per item")
	m.figure("after %d recycles memory is back %d ms after the process at the latest, %s left over", recycles, longest.Milliseconds(),
		gpumux.Size(m.used()-before))
}

func one(item json.RawMessage) iter.Seq2[calls.Item, error] { return many(item, 1) }

// Nothing of a thousand fresh processes stays on the device.
func TestGPU_FreshItemsLeaveNothing(t *testing.T) {
	m := onGPU(t)
	count := 1000
	if rehearsed() {
		count = 20
	}
	if value := os.Getenv("GPUMUX_GPU_ITEMS"); value != "" {
		var err error
		count, err = strconv.Atoi(value)
		require.NoError(t, err, "GPUMUX_GPU_ITEMS is the number of items")
	}
	items := make([]object, count)
	for i := range items {
		items[i] = object{"framework": "driver", "bytes": 64 * mib}
	}
	before, began := m.used(), time.Now()
	results := m.mapped(0, "hold", items, "--mode", "fresh", "--slots", "8")
	took := time.Since(began)
	pids := map[int]bool{}
	for _, r := range results {
		pids[value[struct{ PID int }](t, r).PID] = true
	}
	require.Len(t, pids, count, "a process per item")
	_, over := m.returns(before)
	m.figure("%d fresh items in %.0f s, %.0f ms each in each of 8 slots; %s of device memory left over", count, took.Seconds(),
		8000*took.Seconds()/float64(count), gpumux.Size(over))
}

// Slots of one device run at the same time, each with its own memory.
func TestGPU_SlotsSideBySide(t *testing.T) {
	m := onGPU(t)
	const slots = 4
	folder := filepath.Join(m.dir, "here")
	require.NoError(t, os.Mkdir(folder, 0o700))
	items := make([]object, slots)
	for i := range items {
		items[i] = object{"folder": folder, "count": slots, "bytes": gib, "seconds": 1}
	}
	ctx, cancel := context.WithCancel(t.Context())
	largest, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			held, err := m.inventory.ProcessMemory(m.device.UUID)
			if err != nil {
				return
			}
			n := 0
			for _, bytes := range held {
				if bytes >= gib {
					n++
				}
			}
			largest = max(largest, n)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	results := m.mapped(0, "together", items, "--slots", strconv.Itoa(slots), "--memory", "3GiB", "--option", "chunk=1")
	cancel()
	<-ended
	pids := map[int]bool{}
	for _, r := range results {
		pids[value[int](t, r)] = true
	}
	require.Len(t, pids, slots)
	m.figure("%d slots hold memory on one device at once; the driver listed %d at a time", slots, largest)
	if largest > 0 {
		require.GreaterOrEqual(t, largest, slots)
	}
}

// A small model leaves room on a large device: how many slots get the most done is found
// by measurement.
func TestGPU_Packing(t *testing.T) {
	t.Run("torch", func(t *testing.T) {
		m := onGPU(t)
		m.needs("torch")
		if rehearsed() {
			rig.Because(t, rig.StandIn, "it has no networks")
		}
		before, began := m.used(), time.Now()
		items := make([]object, 15_000)
		for i := range items {
			items[i] = object{"number": i}
		}
		answers := map[float64]bool{}
		for _, r := range m.mapped(0, "small", items, "--slots", "auto") {
			answers[value[float64](t, r)] = true
		}
		require.LessOrEqual(t, len(answers), maxPacked, "a process has a network of its own, and each gives one answer")
		found := "the search did not settle"
		for line := range strings.Lines(m.output) {
			if at := strings.Index(line, "per device for task"); at >= 0 {
				found = strings.TrimSpace(line)
			}
		}
		m.figure("%d items in %.0f s; %s", len(items), time.Since(began).Seconds(), found)
		m.returns(before)
	})
}

// maxPacked is more processes than a search of slots starts on one device.
const maxPacked = 64
