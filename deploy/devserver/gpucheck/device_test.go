package gpucheck

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/health"
	"github.com/gpumux/gpumux/workers/memory"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/pyruntime"
	"github.com/gpumux/gpumux/workers/slot/session"
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

// What a process takes beside its frameworks' allocators is measured again with later items, when libraries have loaded more.
func TestGPU_ContextAfterItems(t *testing.T) {
	m := onGPU(t)
	m.needs("torch")
	m.seen()
	runtime, err := pyruntime.Install(filepath.Join(m.dir, "runtime"))
	require.NoError(t, err)
	placements, _, err := config.Config{
		Store: "file://" + m.dir, Pools: []config.Pool{{Name: "gpu", Devices: gpu.Selection{m.device.UUID}, Memory: 8 * gib}},
		Tasks: map[string]config.Task{"convolve": {Python: m.tasks + ":convolve"}},
	}.Plan(m.inventory)
	require.NoError(t, err)
	keeper := memory.New(placements, m.inventory, process.NewSweeper(zap.NewNop()), zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { keeper.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	o := slot.Options{Name: "gpu/0", Device: m.device.UUID, Memory: 8 * gib, Room: 7 * gib, Runtime: runtime,
		Env: map[string]string{"CUDA_VISIBLE_DEVICES": m.device.UUID}}
	keeper.Confine(&o, placements[0], placements[0].Groups[0])
	var contexts []int64
	note := o.Capped
	o.Capped = func(c session.Cap) {
		contexts = append(contexts, c.Context)
		note(c)
	}
	s := slot.New(o)
	defer func() { require.NoError(t, s.Stop(context.Background())) }()
	task := launch.Task{Name: "convolve", Python: m.tasks + ":convolve", Interpreter: python(), Dir: filepath.Dir(m.tasks), PassEnv: passed()}
	for range 4 {
		require.NoError(t, s.Run(t.Context(), slot.Call{Task: task, Items: one([]byte("null")), Done: func(d slot.Done) { require.Nil(t, d.Fault) }}))
	}
	require.GreaterOrEqual(t, len(contexts), 2)
	first, last := contexts[0], contexts[len(contexts)-1]
	require.Positive(t, first)
	require.GreaterOrEqual(t, last, first)
	require.GreaterOrEqual(t, int64(keeper.Allowance(memory.Model(m.device), "convolve")), first*7/8)
	m.figure("beside PyTorch's allocator the process held %s at CUDA's start, and %s after convolutions", gpumux.Size(first), gpumux.Size(last))
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

// listed is what the driver lists of a process with a context and so many bytes of managed memory.
func (m *machine) listed(bytes int64) int64 {
	m.t.Helper()
	r := m.mapped(0, "managed", []object{{"bytes": bytes}}, "--slots", "1")
	return value[int64](m.t, r[0])
}
