package bench

import (
	"context"
	"fmt"
	"runtime"

	"github.com/gpumux/gpumux"
)

// calibrate finds sizes at which a piece has enough items, and what an item takes on the unshared device.
func (b *bench) calibrate(ctx context.Context) ([]workload, error) {
	b.o.Say("calibrating")
	memory := b.on.device.Memory
	if b.cpu != nil {
		memory = min(memory, b.cpu.device.Memory)
	}
	longest := piece / leastItems
	if b.o.Quick {
		longest = quickPiece / leastItems
	}
	var loads []workload
	for _, name := range b.o.names() {
		w := workload{name: name}
		if name == "oom" {
			w.memory = budgetFor(memory, b.most())
			if w.memory < budget {
				b.note("oom: the budget is %s instead of %s, because this machine has %s", w.memory, gpumux.Size(budget), gpumux.Size(memory))
			}
		}
		env := environ(b.around[1], w.env(b.on.probe.Framework, 1))
		found := map[string]struct {
			Size, Wanted int
			Seconds      float64
		}{}
		if err := b.ask(ctx, env, &found, "measure", fmt.Sprint(longest.Seconds()), name); err != nil {
			return nil, err
		}
		w.size, w.seconds = found[name].Size, max(found[name].Seconds, 1e-7)
		if w.size < found[name].Wanted {
			b.note("%s multiplies %d×%d instead of %d×%d, so that the whole does not take too long", name, w.size, w.size,
				found[name].Wanted, found[name].Wanted)
		}
		loads = append(loads, w)
	}
	return loads, nil
}

// cpuSlots is how many slots the CPU has without being told.
func cpuSlots() int { return min(runtime.GOMAXPROCS(0), mostSlots) }

// crowd is by how much clients side by side slow each other down at worst: on a GPU they share it, on the CPU its processors.
func (b *bench) crowd(clients int) float64 {
	if b.on.gpu() {
		return float64(clients)
	}
	return max(1, float64(clients)/float64(runtime.GOMAXPROCS(0)))
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
