package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

// small is the share of an item's time that gpumux's own may take before it is worth speaking of.
const small = 0.05

// advise says what the figures mean for a pool.
func (r *Report) advise() {
	for _, name := range Workloads {
		if name == "oom" {
			r.adviseMemory()
			continue
		}
		if r.row(name, Persistent, 0) != nil {
			r.Advice = append(r.Advice, r.adviseWay(name))
		}
	}
	if n := enough(r.Sweep); n > 0 {
		last := r.Sweep[len(r.Sweep)-1]
		text := fmt.Sprintf("slots: %d", n)
		switch {
		case len(r.Sweep) == 1:
			text += " is all that was measured; give --slots to try more"
		case last.Slots == n:
			text += fmt.Sprintf(", the most that were tried; throughput of medium items still grew, so try more with --slots %d", 2*n)
		default:
			text += fmt.Sprintf("; %d slots do not bring 5%% more throughput of medium items", last.Slots)
		}
		r.Advice = append(r.Advice, text)
	}
	r.adviseFresh()
	r.adviseSmall()
}

// adviseWay is sequential, shared or CPU for one workload.
func (r *Report) adviseWay(name string) string {
	shared := r.row(name, Persistent, 0)
	one, cpu := r.row(name, Sequential, 0), r.row(name, OnCPU, 0)
	what := label(name, shared.Size) + " items: "
	best := shared.Rate
	if one != nil {
		best = max(best, one.Rate)
	}
	switch {
	case cpu != nil && cpu.Rate >= best:
		return what + fmt.Sprintf("the CPU; it does %s of what the GPU does", times(cpu.Rate/best))
	case one == nil:
		return what + fmt.Sprintf("%s per second with one slot; give --slots to see whether sharing helps", figure(shared.Rate))
	case shared.Rate >= one.Rate*worthwhile:
		return what + fmt.Sprintf("shared; %s do %s of what one does", plural(shared.Slots, "slot"), times(shared.Rate/one.Rate))
	}
	return what + fmt.Sprintf("sequential; %s do only %s of what one does", plural(shared.Slots, "slot"), times(shared.Rate/one.Rate))
}

// adviseMemory says what became of the items that passed the budget.
func (r *Report) adviseMemory() {
	row := r.row("oom", Persistent, 0)
	if row == nil {
		return
	}
	if row.failed() == 0 {
		r.Advice = append(r.Advice, "oom items: none failed, so nothing keeps a task within its memory budget here; give budgets that add up to less than the device")
		return
	}
	r.Advice = append(r.Advice, fmt.Sprintf("oom items: an item over its budget costs itself (%s), never its neighbours", outcomeText(*row)))
}

// adviseFresh says what a process per item costs.
func (r *Report) adviseFresh() {
	for _, name := range []string{"light", "medium", "heavy"} {
		fresh, persistent := r.row(name, Fresh, 0), r.row(name, Persistent, 0)
		if fresh != nil && persistent != nil && fresh.Median > persistent.Median {
			r.Advice = append(r.Advice, fmt.Sprintf("fresh mode: a process per item costs %s; take it for tasks that leak or crash, and persistent otherwise",
				seconds(fresh.Median-persistent.Median)))
			return
		}
	}
}

// adviseSmall says what gpumux costs per item and per map, and from which size on an item hides it.
func (r *Report) adviseSmall() {
	light, plainly := r.row("light", Persistent, 0), r.row("light", Bare, r.Slots)
	if light == nil || plainly == nil {
		return
	}
	cost := light.Mean - plainly.Mean
	if cost <= 0 {
		return
	}
	r.Advice = append(r.Advice, fmt.Sprintf("gpumux takes %s per item; items shorter than %s lose more than %.0f%% to it, so put several into one item",
		seconds(cost), seconds(cost/small), small*100))
	if whole := light.Total - light.Mean*float64(light.Items)/float64(light.Slots); whole > 0 {
		r.Advice = append(r.Advice, fmt.Sprintf("a map takes %s beside its items, so give one map many items rather than many maps few", seconds(whole)))
	}
}

// outcomeText is "3 budget, the other 12 finished".
func outcomeText(row Row) string {
	if row.failed() == 0 {
		return "all finished"
	}
	return fmt.Sprintf("%s, the other %d finished", faultsText(row.Faults), int64(row.Items)-row.failed())
}

// faultsText is "2 budget, 1 crash".
func faultsText(faults map[gpumux.Kind]int64) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		parts = append(parts, fmt.Sprintf("%d %s", faults[kind], kind))
	}
	return strings.Join(parts, ", ")
}
