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

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// cachingPy imitates PyTorch's caching allocator: its rounding, its segments of 2 and of
// 20 MiB, its splits, and a limit that counts what is reserved.
const cachingPy = `
import os, types
MIB, TOTAL = 1 << 20, 80 << 30
CONTEXT = int(os.environ["CONTEXT"]) * MIB
waiting, limit, live, peak, segments = [], TOTAL, 0, 0, []
uint8 = "uint8"
class OutOfMemoryError(RuntimeError): pass
def reserved(): return sum(s.size for s in segments)
def driver():
    path = os.path.join(os.environ["DRIVER"], str(os.getpid()))
    with open(path + ".tmp", "w") as f: f.write("%s %d\n" % (os.environ["UUID"], CONTEXT + reserved()))
    os.rename(path + ".tmp", path)
class Segment:
    def __init__(self, size, small): self.size, self.small, self.parts = size, small, [[size, True]]
def release():
    segments[:] = [s for s in segments if len(s.parts) > 1 or not s.parts[0][1]]
    driver()
class Block:
    def __init__(self, size):
        global live, peak
        size = -(-size // 512) * 512
        small = size <= MIB
        fits = [(part[0], i, part) for i, s in enumerate(segments) if s.small == small for part in s.parts if part[1] and part[0] >= size]
        if not fits:
            need = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            if reserved() + need > limit:
                release()
            if reserved() + need > limit:
                raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes." % need)
            segments.append(Segment(need, small))
            driver()
            fits = [(need, len(segments) - 1, segments[-1].parts[0])]
        _, at, part = min(fits, key=lambda f: f[:2])
        self.segment, self.part = segments[at], part
        rest = part[0] - size
        if rest >= 512 if small else rest > MIB:
            part[0] = size
            self.segment.parts.insert(self.segment.parts.index(part) + 1, [rest, True])
        part[1] = False
        live += part[0]
        peak = max(peak, live)
    def __del__(self):
        global live
        if not hasattr(self, "part"): return
        live -= self.part[0]
        self.part[1] = True
        parts = self.segment.parts
        for i in range(len(parts) - 1, 0, -1):
            if parts[i][1] and parts[i - 1][1]:
                parts[i - 1][0] += parts.pop(i)[0]
def empty(size, dtype, device): return Block(size)
def fraction(share, index):
    global limit
    limit = share * TOTAL
def start():
    driver()
    while waiting: waiting.pop(0)()
def stats(index):
    pools = lambda current, most=0: {"all": {"current": current, "peak": most}}
    return {"allocated_bytes": pools(live, peak), "active_bytes": pools(live), "inactive_split_bytes": pools(0), "reserved_bytes": pools(reserved())}
def reset(index):
    global peak
    peak = live
cuda = types.SimpleNamespace(
    _lazy_call=waiting.append, start=start, device_count=lambda: 1, memory_reserved=lambda i: reserved(), empty_cache=release,
    get_device_properties=lambda i: types.SimpleNamespace(total_memory=TOTAL), set_per_process_memory_fraction=fraction,
    is_initialized=lambda: not waiting, memory_stats_as_nested_dict=stats, reset_peak_memory_stats=reset)
`

const cachingTask = `
import time, torch
def takes(sizes):
    torch.cuda.start()
    blocks = [torch.Block(int(mb * torch.MIB)) for mb in sizes]
    time.sleep(0.03)
    return len(blocks)
`

// A map that ran with a large budget says which budget would do. Given that, it runs
// again.
func TestPeaks_AMapRunsWithTheBudgetThatWouldDo(t *testing.T) {
	many := func(n int, mb float64) (list []float64) {
		for range n {
			list = append(list, mb)
		}
		return list
	}
	for name, c := range map[string]struct {
		context int
		items   [][]float64
	}{
		"a model of many tensors":     {500, [][]float64{append(many(150, 11), many(100, 0.3)...), {1500}}},
		"items of very unequal sizes": {300, [][]float64{{100}, {1000, 1000}, {1900}, {30, 1800}}},
	} {
		t.Run(name, func(t *testing.T) {
			machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 80 << 30}}})
			inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, inventory.Close()) })
			device := inventory.Devices()[0]
			b := newWorkbench(t, inventory)
			b.env["DRIVER"], b.env["UUID"], b.env["CONTEXT"] = machine.File+".d", device.UUID, fmt.Sprint(c.context)
			for file, text := range map[string]string{"torch.py": cachingPy, "tasks.py": cachingTask} {
				require.NoError(t, os.WriteFile(filepath.Join(b.dir, file), []byte(text), 0o644))
			}
			group := config.Group{Name: device.UUID, Devices: []gpu.Device{device}}
			// runs is a map in one process.
			runs := func(budget gpumux.Size) (peaks gpumux.Peaks) {
				s := b.slot(device.UUID, budget)
				peaks = gpumux.Peaks{Budget: budget, GPUs: 1}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				require.NoError(t, s.Run(ctx, b.task("takes"), slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
					for i, item := range c.items {
						raw, err := json.Marshal(item)
						if !yield(calls.Item{Index: int64(i), Value: raw}, err) {
							return
						}
					}
				}, OnDone: func(d calls.Done) { require.Nil(t, d.Fault); peaks.Add(d.Peak) }}, Room: Room(config.Pool{Memory: budget, GPUsPerSlot: 1}, group)}))
				require.NoError(t, s.Stop(t.Context()))
				return peaks
			}
			first := runs(40 << 30)
			require.EqualValues(t, len(c.items), first.Items())
			would := first.Need()
			t.Log(&first)
			require.Less(t, would, 4*first.Max()+64<<20, "and no more than that")
			runs(would)
		})
	}
}
