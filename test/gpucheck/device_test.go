package gpucheck

import (
	"context"
	"encoding/json"
	"iter"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/memory"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

// A probe passes on a GPU that works, and fails on one that is not there.
func TestGPU_Probe(t *testing.T) {
	m := onGPU(t)
	before := m.used()
	prober := health.Prober{Python: python()}
	first, again := prober.Try(t.Context(), m.device.UUID), prober.Try(t.Context(), m.device.UUID)
	require.True(t, first.OK, "%+v", first)
	require.True(t, again.OK, "%+v", again)
	require.InDelta(t, m.device.Memory, first.Total, float64(m.device.Memory)/20)
	m.figure("a probe took %.2f s, and %.2f s the second time; its context holds %s", first.Seconds, again.Seconds, gpumux.Size(first.Context))
	gone := prober.Try(t.Context(), "GPU-00000000-1111-2222-3333-444444444444")
	require.True(t, gone.Sick(), "%+v", gone)
	require.Equal(t, 100, gone.Code)
	m.returns(before)
}

// watched is a slot on the device whose budget is watched, and a task of tasks.py for it.
func (m *machine) watched(function string, budget gpumux.Size) (*slot.Slot, launch.Task) {
	m.t.Helper()
	runtime, err := runtimes.Python(filepath.Join(m.dir, "runtime"))
	require.NoError(m.t, err)
	placements, _, err := config.Config{
		Store: "file://" + m.dir, Pools: []config.Pool{{Name: "gpu", Devices: gpu.Selection{m.device.UUID}, Memory: budget}},
		Tasks: map[string]config.Task{function: {Python: m.tasks + ":" + function}},
	}.Plan(m.inventory)
	require.NoError(m.t, err)
	keeper, err := memory.New(placements, m.inventory, nil, zap.NewNop())
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(m.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { keeper.Run(ctx) })
	m.t.Cleanup(func() { cancel(); watching.Wait() })
	o := slot.Options{Name: "gpu/0", Device: m.device.UUID, Memory: budget, Room: budget, Runtime: runtime,
		Env: map[string]string{"CUDA_VISIBLE_DEVICES": m.device.UUID}}
	keeper.Confine(&o, "gpu")
	s := slot.New(o)
	m.t.Cleanup(func() { require.NoError(m.t, s.Stop(context.Background())) })
	return s, launch.Task{Name: function, Python: m.tasks + ":" + function, Interpreter: python(), Dir: filepath.Dir(m.tasks),
		PassEnv: []string{"PYTHONPATH"}}
}

// A process that fills its budget nearly, and needs all of it, goes on: it is neither
// ended nor told to clean up all the time.
func TestGPU_NearlyFull(t *testing.T) {
	const budget, count = 4 * gib, 300
	for _, framework := range []string{"driver", "torch"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			if framework != "driver" {
				m.needs(framework)
			}
			m.seen()
			before := m.used()
			context := (&health.Prober{Python: python()}).Try(t.Context(), m.device.UUID).Context
			require.Positive(t, context)
			s, task := m.watched("full", budget)
			item, err := json.Marshal(object{"framework": framework, "upto": budget * 97 / 100})
			require.NoError(t, err)
			var held []int64
			pids := map[int]bool{}
			began := time.Now()
			err = s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: many(item, count), OnDone: func(d calls.Done) {
				got := value[struct{ PID, Held int64 }](t, d.Result)
				pids[int(got.PID)] = true
				held = append(held, got.Held)
			}}})
			require.NoError(t, err)
			stats := s.Stats()
			require.Len(t, held, count)
			require.Len(t, pids, 1, "%+v", stats)
			require.Empty(t, stats.Recycled)
			require.Greater(t, slices.Min(held), int64(budget)*95/100)
			require.Less(t, slices.Max(held), int64(budget))
			m.figure("%s: %d items at %.0f %% of the budget in %.1f s", framework, count, 100*float64(slices.Max(held))/budget,
				time.Since(began).Seconds())
			require.NoError(t, s.Clear(t.Context()))
			m.returns(before)
		})
	}
}

// A MIG instance is a device of its own: it has its memory and no more, and processes on
// it are found there.
func TestGPU_MIG(t *testing.T) {
	m := onGPU(t)
	if m.device.Kind != gpu.KindMIG {
		rig.Because(t, rig.MIG, "devices are ", m.device)
	}
	before := m.used()
	probe := (&health.Prober{Python: python()}).Try(t.Context(), m.device.UUID)
	require.True(t, probe.OK, "%+v", probe)
	require.InDelta(t, m.device.Memory, probe.Total, float64(m.device.Memory)/20, "CUDA sees the instance alone")
	results := m.mapped(1, "hold", []object{
		{"framework": "driver", "bytes": m.device.Memory / 4}, {"framework": "driver", "bytes": m.device.Memory * 2},
	}, "--sharing", "mig", "--slots", "1", "--devices", m.device.UUID)
	value[struct{}](t, results[0])
	require.NotNil(t, results[1].Fault, "twice the instance: %s", results[1].Value)
	require.Equal(t, m.device.UUID, results[1].Fault.Device)
	m.figure("%s has %s; a context takes %s; twice the instance: %s", m.device.Name, gpumux.Size(m.device.Memory), gpumux.Size(probe.Context),
		results[1].Fault.Message)
	m.seen()
	m.returns(before)
}

func many(item json.RawMessage, count int) iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		for i := range count {
			if !yield(calls.Item{Index: int64(i), Value: item}, nil) {
				return
			}
		}
	}
}

// Memory that CUDA moves between host and device by itself: what the driver lists of it.
func TestGPU_ManagedMemory(t *testing.T) {
	m := onGPU(t)
	m.seen()
	var held struct{ Before, After int64 }
	held.Before, held.After = m.listed(0), m.listed(gib)
	m.figure("of 1 GiB of managed memory the driver lists %s", gpumux.Size(held.After-held.Before))
	require.GreaterOrEqual(t, held.After, held.Before)
}

// listed is what the driver lists of a process with a context and so many bytes of
// managed memory.
func (m *machine) listed(bytes int64) int64 {
	m.t.Helper()
	r := m.mapped(0, "managed", []object{{"bytes": bytes}}, "--slots", "1")
	return value[int64](m.t, r[0])
}
