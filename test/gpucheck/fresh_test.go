package gpucheck

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fresh item of a module that imports its framework at its top, as most do, is forked
// from a template and takes a fraction of what a new interpreter does.
func TestGPU_FreshFromTemplate(t *testing.T) {
	const goal = 0.2
	for framework, module := range map[string]string{"torch": "torch", "jax": "jax.numpy", "cupy": "cupy"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			m.importing(module)
			forked := m.fresh(framework, 9)
			require.Contains(t, m.output, "template ready")
			spawned := m.fresh(framework, 3, "--fresh", "spawn")
			require.NotContains(t, m.output, "template ready")
			m.figure("%s: a fresh item takes %.2f s forked from a template (%.2f s of it on the device, the first item %.2f s) and %.2f s in a new "+
				"interpreter: %.0f %% of it (goal %.0f %%)", framework, forked.each, forked.work.median, forked.work.first, spawned.each,
				100*forked.each/spawned.each, 100*goal)
		})
	}
}

// importing is the machine with tasks.py below the import of a module.
func (m *machine) importing(module string) {
	m.t.Helper()
	text, err := os.ReadFile(m.tasks)
	require.NoError(m.t, err)
	m.tasks = filepath.Join(m.dir, "tasks.py")
	require.NoError(m.t, os.WriteFile(m.tasks, slices.Concat([]byte("import "+module+"\n"), text), 0o600))
}

// durations are those of items in their function, in seconds.
type durations struct{ first, median float64 }

func durationsOf(seconds []float64) durations {
	return durations{seconds[0], slices.Sorted(slices.Values(seconds))[len(seconds)/2]}
}

// perItem is what fresh items came to.
type perItem struct {
	each float64 // seconds from the end of an item to that of the next
	work durations
}

// fresh maps a product over fresh items one after the other, each in a process of its
// own.
func (m *machine) fresh(framework string, count int, flags ...string) perItem {
	m.t.Helper()
	items := slices.Repeat([]object{{"framework": framework}}, count)
	results := m.mapped(0, "product", items, append(flags, "--mode", "fresh", "--slots", "1", "--memory", "8GiB")...)
	var ended, work []float64
	pids := map[int]bool{}
	for _, r := range results {
		got := value[struct {
			PID                 int
			Sum, Seconds, Ended float64
		}](m.t, r)
		require.InDelta(m.t, 4096, got.Sum, 0.5)
		pids[got.PID], ended, work = true, append(ended, got.Ended), append(work, got.Seconds)
	}
	require.Len(m.t, pids, count, "a process per item")
	return perItem{(slices.Max(ended) - slices.Min(ended)) / float64(count-1), durationsOf(work)}
}

// What it brings JAX to take its share of the device at its start.
func TestGPU_Preallocation(t *testing.T) {
	t.Run("jax", func(t *testing.T) {
		m := onGPU(t)
		m.needs("jax")
		took := map[string]durations{}
		t.Setenv("XLA_CLIENT_MEM_FRACTION", ".05")
		for _, preallocate := range []string{"true", "false"} {
			t.Setenv("XLA_PYTHON_CLIENT_PREALLOCATE", preallocate) // a slot with a budget would set it
			var seconds []float64
			for _, r := range m.mapped(0, "product", slices.Repeat([]object{{"framework": "jax"}}, 50), "--slots", "1") {
				seconds = append(seconds, value[struct{ Seconds float64 }](t, r).Seconds)
			}
			took[preallocate] = durationsOf(seconds)
		}
		m.figure("JAX with a twentieth of the device: with preallocation the first item takes %.2f s and the next %.3f ms; without it %.2f s and %.3f ms",
			took["true"].first, 1000*took["true"].median, took["false"].first, 1000*took["false"].median)
	})
}
