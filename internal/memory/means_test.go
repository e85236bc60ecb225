package memory

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/wire"
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

	list, seen = enforced(t, inventory, pool, func(e *Enforcer) { e.Tried(inventory.Devices()[0].UUID, false) })
	require.Equal(t, []string{"framework caps"}, list)
	loud := seen.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, loud, 1)
	require.Contains(t, loud[0].Message, "the driver does not tell what processes hold on")
	require.Contains(t, loud[0].Message, "a task that allocates past its framework takes from its neighbours")
	require.Contains(t, loud[0].ContextMap()["advice"], "--pid=host")
	require.Contains(t, loud[0].ContextMap()["advice"], "565.57")

	e, seen := enforcer(t, inventory, pool)
	var o slot.Options
	e.Confine(&o, "gpu")
	for range 2 {
		o.Capped("train", wire.Cap{Framework: "torch"})
		o.Capped("train", wire.Cap{Framework: "jax", Error: "no limit"})
	}
	require.Equal(t, 1, seen.FilterMessage("the framework's own limit was tried and holds").Len())
	loud = seen.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, loud, 1)
	require.Contains(t, loud[0].Message, "does not keep to the slot's memory by itself")
	require.Equal(t, "no limit", loud[0].ContextMap()["why"])

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
		s.GPUs[0].Free, s.GPUs[0].Reserved = 10<<30, 1<<30
		s.GPUs[0].Processes = []gputest.Process{{PID: 7, Memory: 9 << 30}, {PID: 8, Memory: 60 << 30}}
	})
	const others = "others hold 69GiB of GPU 0 (process 8 60GiB, process 7 9GiB)"
	_, seen = enforced(t, inventory, pool, nil)
	require.Equal(t, 1, seen.FilterMessage(others+" and leave less than the budget of a slot, 16GiB").FilterLevelExact(zap.WarnLevel).Len())
	pool.Memory = 0
	_, seen = enforced(t, inventory, pool, nil)
	require.Equal(t, 1, seen.FilterMessage(others).Len())
	machine.Update(func(s *gputest.State) { s.GPUs[0].Free = 78 << 30 })
	_, seen = enforced(t, inventory, pool, nil)
	require.Empty(t, seen.All())
}

// A driver in a container may list processes with 0 bytes. What a probe found decides.
func TestMeans_AProbeDecidesWhetherTheWatchSees(t *testing.T) {
	machine := gputest.New(t, gputest.State{Lists: gputest.ZeroBytes, GPUs: []gputest.GPU{{}, {}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	devices := inventory.Devices()
	e, seen := enforcer(t, inventory, config.Pool{Name: "gpu", Devices: gpu.Selection{"0", "1"}, Slots: 2, Memory: 4 << 30})
	e.Tried(devices[0].UUID, true)
	require.Equal(t, []string{"framework caps", "watch every 100ms"}, e.Means("gpu"))
	e.Tried(devices[1].UUID, false)
	e.Report()
	require.Equal(t, []string{"framework caps"}, e.Means("gpu"))
	lines := seen.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, lines, 1)
	require.Equal(t, "gpu", lines[0].ContextMap()["pool"])
	require.Contains(t, lines[0].Message, devices[1].UUID)
	e.Tried(devices[1].UUID, true)
	require.Equal(t, []string{"framework caps"}, e.Means("gpu"), "once it did not tell, it is not believed")
}
