package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// torchPy imitates the memory of torch: a context that the driver sees, an allocator
// whose limit holds or does not, and calls that wait until CUDA has started.
const torchPy = `
import os, types
CONTEXT, TOTAL = 300 << 20, 80 << 30
waiting, fractions, held = [], [], [0]
limit = TOTAL
uint8 = "uint8"
class OutOfMemoryError(RuntimeError): pass
def driver():
    path = os.path.join(os.environ["DRIVER"], str(os.getpid()))
    with open(path + ".tmp", "w") as f: f.write("%s %d\n" % (os.environ["UUID"], CONTEXT + held[0]))
    os.rename(path + ".tmp", path)
class Block:
    def __init__(self, size): self.size = size; held[0] += size; driver()
    def __del__(self): held[0] -= self.size; driver()
def empty(size, dtype, device):
    if "HOLDS" in os.environ and held[0] + size > limit:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes." % size)
    return Block(size)
def fraction(share, index):
    global limit
    limit = share * TOTAL
    fractions.append(share)
def start():
    driver()
    while waiting: waiting.pop(0)()
cuda = types.SimpleNamespace(
    _lazy_call=waiting.append, start=start, device_count=lambda: 1, memory_reserved=lambda i: held[0], empty_cache=lambda: None,
    get_device_properties=lambda i: types.SimpleNamespace(total_memory=TOTAL), set_per_process_memory_fraction=fraction,
    is_initialized=lambda: True)
`

const torchTask = `
import torch
kept = torch.empty(1000 << 20, torch.uint8, "cuda:0") if %s else None
def takes(mb):
    torch.cuda.start()
    if mb == 2:
        torch.CONTEXT = 900 << 20  # libraries load with the items that need them
        torch.driver()
    try:
        block = torch.empty(mb << 20, torch.uint8, "cuda:0")
    except torch.OutOfMemoryError:
        return ["refused", torch.fractions[-1] * torch.TOTAL]
    return ["taken", torch.fractions[-1] * torch.TOTAL]
`

// cuda is a slot of 8 GiB on an imitated GPU. Its task uses the imitated torch.
type cuda struct {
	*workbench
	machine    *gputest.Machine
	inventory  *gpu.Inventory
	cap        session.Cap // the last one
	allowances *allowances
	slot       *slot.Slot
	device     gpu.Device
	pool       config.Pool
	group      config.Group
}

func newCUDA(t *testing.T, holds, resident bool) *cuda {
	t.Helper()
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 80 << 30}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inventory.Close()) })
	c := &cuda{workbench: newWorkbench(t, inventory, true), machine: machine, inventory: inventory, device: inventory.Devices()[0]}
	c.allowances = newAllowances(c.to)
	c.env["DRIVER"], c.env["UUID"] = machine.File+".d", c.device.UUID
	if holds {
		c.env["HOLDS"] = "1"
	}
	kept := "False"
	if resident {
		kept = "True"
	}
	for name, text := range map[string]string{"torch.py": torchPy, "tasks.py": fmt.Sprintf(torchTask, kept)} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
	}
	c.pool = config.Pool{Name: "pool", Memory: 8 << 30, GPUsPerSlot: 1}
	c.group = config.Group{Name: c.device.UUID, Devices: []gpu.Device{c.device}}
	c.slot = c.workbench.slot(c.device.UUID, 8<<30, func(o *slot.Options) {
		o.Capped = func(cap session.Cap) {
			c.cap = cap
			c.allowances.capped(c.pool.Name, Model(c.device), 1, cap)
		}
	})
	return c
}

// takes lets an item take this many MiB. It returns how that went and torch's limit.
func (c *cuda) takes(t *testing.T, mb int) (how string, limit float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	raw, err := json.Marshal(mb)
	require.NoError(t, err)
	var done calls.Done
	call := slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) { yield(calls.Item{Value: raw}, nil) }, OnDone: func(d calls.Done) { done = d }}, Room: Room(c.pool, c.group, c.allowances.get(Model(c.device), "takes"))}
	require.NoError(t, c.slot.Run(ctx, c.task("takes"), call))
	require.Nil(t, done.Fault)
	require.NoError(t, json.Unmarshal(done.Value, &[]any{&how, &limit}))
	return how, limit
}

// Trying a limit takes no memory. The worker measures what the process holds beside the
// framework. In the next process the measured value replaces the guess.
func TestAllowance_OfATaskThatUsesCUDA(t *testing.T) {
	c := newCUDA(t, true, false)
	how, limit := c.takes(t, 7100)
	require.Equal(t, "taken", how)
	require.EqualValues(t, 8192-1024, limit/(1<<20), "nobody knows better yet")
	lines := c.log.FilterMessage("the framework's own limit was tried and holds").All()
	require.Len(t, lines, 1)
	require.Equal(t, "300MiB", lines[0].ContextMap()["context"])
	require.Equal(t, "torch", lines[0].ContextMap()["framework"])
	require.EqualValues(t, 300<<20, c.allowances.get(c.device.Name, "takes"))

	require.NoError(t, c.slot.Clear(t.Context()))
	how, limit = c.takes(t, 7818)
	require.Equal(t, "refused", how)
	require.EqualValues(t, 8192-300-75, limit/(1<<20))

	require.Zero(t, c.allowances.get("another model", "takes"))
}

// Libraries that load with later items are found at the second, fourth, eighth … frame of
// items.
func TestAllowance_IsMeasuredAgain(t *testing.T) {
	c := newCUDA(t, true, false)
	for _, mb := range []int{1, 2, 3} {
		c.takes(t, mb)
		require.EqualValues(t, 300<<20, c.allowances.get(c.device.Name, "takes"))
	}
	c.takes(t, 4)
	require.EqualValues(t, 900<<20, c.allowances.get(c.device.Name, "takes"))
}

// A model that the task loads at its import counts for the framework, not for the
// context.
func TestAllowance_WithoutWhatIsResident(t *testing.T) {
	c := newCUDA(t, true, true)
	c.takes(t, 1)
	require.EqualValues(t, 300<<20, c.allowances.get(c.device.Name, "takes"))
}

func TestAllowance_ALimitThatDoesNotHoldIsSaid(t *testing.T) {
	c := newCUDA(t, false, false)
	how, _ := c.takes(t, 7800)
	require.Equal(t, "taken", how)
	require.NoError(t, c.slot.Clear(t.Context()))
	c.takes(t, 1)
	lines := c.log.FilterLevelExact(zap.WarnLevel).FilterMessageSnippet("does not keep to the slot's memory by itself").All()
	require.Len(t, lines, 1, "once")
	require.Contains(t, lines[0].ContextMap()["why"], "an allocation of 128 MiB passed a limit of 32 MiB")
}

// Libraries load with the first items. A process that has loaded less, or a little more,
// changes nothing.
func TestAllowance_OnlyGrowsOnAGPU(t *testing.T) {
	core, seen := observer.New(zap.DebugLevel)
	a := newAllowances(zap.New(core))
	for _, c := range []struct{ measured, want gpumux.Size }{
		{400 << 20, 400 << 20}, {440 << 20, 400 << 20}, {900 << 20, 900 << 20}, {400 << 20, 900 << 20},
	} {
		a.beside("pool", "H100", 2, "train", 2*int64(c.measured))
		require.Equal(t, c.want, a.get("H100", "train"))
	}
	require.Len(t, seen.All(), 2)
	a.capped("pool", "H100", 2, session.Cap{Task: "train", Framework: "torch", Context: 100 << 20})
	require.EqualValues(t, 900<<20, a.get("H100", "train"))
}
