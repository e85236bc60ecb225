package memory

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// enforcer makes an Enforcer over an inventory and returns its log.
func enforcer(t *testing.T, inventory *gpu.Inventory, pools ...config.Pool) (*Enforcer, *observer.ObservedLogs) {
	t.Helper()
	placements, _, err := config.Config{
		Store: "file://" + t.TempDir(), Pools: pools, Tasks: map[string]config.Task{"t": {Command: []string{"/bin/sh"}}},
	}.Plan(inventory)
	require.NoError(t, err)
	core, seen := observer.New(zap.InfoLevel)
	e, err := New(placements, inventory, nil, zap.New(core))
	require.NoError(t, err)
	e.watch.hostPIDs = true
	return e, seen
}

// enforced returns the means of one pool as the worker logs them at its start.
func enforced(t *testing.T, inventory *gpu.Inventory, p config.Pool, change func(*Enforcer)) ([]string, *observer.ObservedLogs) {
	t.Helper()
	e, seen := enforcer(t, inventory, p)
	if change != nil {
		change(e)
	}
	e.Report()
	return e.Means(p.Name), seen
}

func TestMeans_OnTheCPU(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{NoNVML: true})
	require.NoError(t, err)
	pool := config.Pool{Name: "cpu", Devices: gpu.Selection{"cpu"}, Memory: 64 << 20}
	list, seen := enforced(t, inventory, pool, nil)
	require.Equal(t, []string{"watch every 100ms"}, list)
	require.Equal(t, 1, seen.FilterMessage("budget 64MiB enforced by: watch every 100ms").FilterLevelExact(zap.InfoLevel).Len())
	pool.Memory = 0
	list, seen = enforced(t, inventory, pool, nil)
	require.Empty(t, list)
	require.Zero(t, seen.Len(), "no budget, nothing to say")
}

func TestMeans_OnAGPU(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{
		{Total: 80 << 30, Free: 80 << 30},
		{Instances: []gputest.Instance{{Total: 10 << 30, Free: 10 << 30}}},
	}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	pool := config.Pool{Name: "gpu", Devices: gpu.Selection{"0"}, Slots: 4, Memory: 16 << 30}
	list, seen := enforced(t, inventory, pool, nil)
	require.Equal(t, []string{"framework caps", "watch every 100ms"}, list)
	require.Zero(t, seen.FilterLevelExact(zap.WarnLevel).Len())

	list, seen = enforced(t, inventory, pool, func(e *Enforcer) { e.watch.hostPIDs = false })
	require.Equal(t, []string{"framework caps"}, list)
	loud := seen.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, loud, 1)
	require.Contains(t, loud[0].Message, "budget 16GiB enforced by: framework caps only; a task that allocates past its framework")
	require.Contains(t, loud[0].ContextMap()["why"], "--pid=host")
	var notices notice.List
	notices.Say = func(string) {}
	hidden, _ := enforcer(t, inventory, pool)
	hidden.notices, hidden.watch.hostPIDs = &notices, false
	hidden.Report()
	require.Contains(t, notices.All()[0], "pool gpu: budget 16GiB enforced by: framework caps only")

	e, _ := enforcer(t, inventory, pool)
	var o slot.Options
	e.Confine(&o, e.placements[0], e.placements[0].Groups[0])
	o.Capped(session.Cap{Task: "train", Framework: "torch", Context: 700 << 20})
	require.EqualValues(t, 700<<20, e.Allowance("NVIDIA Test GPU", "train"))

	whole := pool
	whole.Devices, whole.Slots, whole.Memory = gpu.Selection{"1:0"}, 1, 9<<30
	list, _ = enforced(t, inventory, whole, nil)
	require.Equal(t, []string{"MIG", "framework caps", "watch every 100ms"}, list)
	whole.Memory = 4 << 30
	list, _ = enforced(t, inventory, whole, nil)
	require.NotContains(t, list, "MIG", "the instance is larger than the budget")

	served := pool
	served.Sharing = "mps"
	t.Setenv("PATH", machine.Folder+":"+os.Getenv("PATH"))
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", "")
	list, _ = enforced(t, inventory, served, nil)
	require.Equal(t, []string{"MPS", "framework caps", "watch every 100ms"}, list)

	machine.Update(func(s *gputest.State) {
		s.GPUs[0].Free, s.GPUs[0].Reserved = 50<<30, 1<<30
		s.GPUs[0].Processes = []gputest.Process{{PID: 7, Memory: 9 << 30}, {PID: 8, Memory: 20 << 30}}
	})
	_, seen = enforced(t, inventory, pool, nil)
	require.Equal(t, 1, seen.FilterMessage("the budgets on it are 64GiB in all, but only 50GiB are free now: others hold 29GiB "+
		"of 80GiB (process 8 20GiB, process 7 9GiB)").FilterLevelExact(zap.WarnLevel).Len())
	pool.Memory = 0
	_, seen = enforced(t, inventory, pool, nil)
	require.Equal(t, 1, seen.FilterMessage("others hold 29GiB of 80GiB (process 8 20GiB, process 7 9GiB)").Len())
	machine.Update(func(s *gputest.State) { s.GPUs[0].Free = 70 << 30 })
	_, seen = enforced(t, inventory, pool, nil)
	require.Empty(t, seen.All(), "nobody asked for more")
}

// A driver may fail to list our processes. The worker notices with the first process that
// is known to use a device.
func TestMeans_OfADriverThatListsOthers(t *testing.T) {
	c := newCUDA(t, true, false)
	c.machine.Update(func(s *gputest.State) { s.PIDShift = 100_000 })
	c.takes(t, 1)
	require.True(t, c.cap.Unseen)
	require.Zero(t, c.allowances.get(c.device.Name, "takes"), "nothing was measured")

	e, seen := enforcer(t, c.inventory,
		config.Pool{Name: "gpu", Devices: gpu.Selection{"0"}, Slots: 2, Memory: 8 << 30},
		config.Pool{Name: "cpu", Devices: gpu.Selection{"cpu"}, Memory: 1 << 30},
		config.Pool{Name: "free", Devices: gpu.Selection{"0"}})
	e.Report()
	seen.TakeAll()
	require.Equal(t, []string{"framework caps", "watch every 100ms"}, e.Means("gpu"))
	c.machine.Update(func(s *gputest.State) { s.GPUs[0].Lost = true })
	e.Tried(c.device.UUID, false)
	require.Empty(t, seen.All(), "a driver that does not answer hides nothing")
	c.machine.Update(func(s *gputest.State) { s.GPUs[0].Lost = false })
	for range 2 {
		e.Tried(c.device.UUID, false)
	}
	require.Equal(t, []string{"framework caps"}, e.Means("gpu"))
	require.Equal(t, []string{"watch every 100ms"}, e.Means("cpu"))
	lines := seen.All()
	require.Len(t, lines, 1, "once, and of the pool that has a budget there")
	require.Equal(t, zap.WarnLevel, lines[0].Level)
	require.Contains(t, lines[0].Message, "budget 8GiB enforced by: framework caps only")
	require.Contains(t, lines[0].ContextMap()["why"], "does not tell what processes hold")

	c.machine.Update(func(s *gputest.State) { s.PIDShift = 0 })
	require.NoError(t, c.slot.Clear(t.Context()))
	c.takes(t, 1)
	require.False(t, c.cap.Unseen)
	e.Tried(c.device.UUID, true)
	require.Equal(t, []string{"framework caps"}, e.Means("gpu"), "once it did not tell, it is not believed")
}

// A driver in a container may list processes with 0 bytes, whatever its version promises,
// or tell them although its version does not. What a probe found decides.
func TestMeans_AProbeDecidesWhetherTheWatchSees(t *testing.T) {
	machine := gputest.New(t, gputest.State{Lists: gputest.ZeroBytes, GPUs: []gputest.GPU{{}, {}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	devices := inventory.Devices()
	for _, promised := range []bool{true, false} {
		e, seen := enforcer(t, inventory, config.Pool{Name: "gpu", Devices: gpu.Selection{"0", "1"}, Slots: 2, Memory: 4 << 30})
		e.watch.hostPIDs = promised
		e.Tried(devices[0].UUID, true)
		e.Tried(devices[1].UUID, false)
		require.Empty(t, seen.All(), "Report says it")
		e.Report()
		require.Equal(t, []string{"framework caps"}, e.Means("gpu"))
		lines := seen.FilterMessageSnippet("framework caps only").All()
		require.Len(t, lines, 1)
		require.Equal(t, "gpu", lines[0].ContextMap()["pool"])
		require.Contains(t, lines[0].ContextMap()["why"], devices[1].UUID)
		require.Contains(t, lines[0].ContextMap()["why"], "--pid=host")
		require.Contains(t, lines[0].ContextMap()["why"], "565.57")
	}
	e, seen := enforcer(t, inventory, config.Pool{Name: "gpu", Devices: gpu.Selection{"0"}, Slots: 2, Memory: 4 << 30})
	e.watch.hostPIDs = false
	e.Tried(devices[0].UUID, true)
	e.Report()
	require.Equal(t, []string{"framework caps", "watch every 100ms"}, e.Means("gpu"))
	require.Empty(t, seen.FilterLevelExact(zap.WarnLevel).All())
}

func TestMeans_BudgetsOfAllPoolsAddUpOnADevice(t *testing.T) {
	a, b := gpu.Device{UUID: "a"}, gpu.Device{UUID: "b"}
	sums := budgets([]config.Placement{
		{Pool: config.Pool{Slots: 2, GPUsPerSlot: 2, Memory: 8 << 30}, Groups: []config.Group{{Devices: []gpu.Device{a, b}}}},
		{Pool: config.Pool{Slots: 3, GPUsPerSlot: 1, Memory: 1 << 30}, Groups: []config.Group{{Devices: []gpu.Device{b}}}},
	})
	require.Equal(t, map[string]gpumux.Size{"a": 8 << 30, "b": 11 << 30}, sums)
}
