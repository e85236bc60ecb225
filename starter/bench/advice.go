package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

const (
	// small is the share of an item's time that gpumux's own may take before it is worth speaking of.
	small = 0.05
	// saturated is what many clients do at most of what one does that leaves nothing to them.
	saturated = 1.1
	// worthwhile is by how much throughput must grow for more clients to be worth it.
	worthwhile = 1.05
)

// advise says what the figures mean for a pool.
func (r *Report) advise() {
	for _, name := range Workloads {
		if name == "oom" {
			r.adviseMemory()
		} else if one := r.row(name, Sequential); one != nil {
			r.Advice = append(r.Advice, r.adviseClients(*one))
		}
	}
	r.adviseIsolation()
	r.adviseSmall()
}

// adviseClients says with how many clients a workload has most throughput and least latency.
func (r *Report) adviseClients(one Row) string {
	what := label(one.Workload, one.Size) + ": "
	best, shared := one, false
	for _, row := range r.Rows {
		if row.Workload != one.Workload || row.Way != Persistent {
			continue
		}
		shared = true
		if row.OfUnshared.Median > best.OfUnshared.Median {
			best = row
		}
	}
	if cpu := r.row(one.Workload, OnCPU); cpu != nil && cpu.OfUnshared.clear(best.OfUnshared) {
		return what + fmt.Sprintf("the CPU; it does %s of the unshared GPU, and the GPU's slots %s", cpu.OfUnshared.share(), best.OfUnshared.share())
	}
	if !shared {
		return what + fmt.Sprintf("1 slot does %s of the unshared device; give --clients to see whether sharing helps", one.OfUnshared.share())
	}
	best = r.simplest(one, best)
	if r.saturating(one.Workload) {
		what += "saturating, one client uses all of the device; "
	}
	switch {
	case best.OfUnshared.clear(one.OfUnshared) && best.OfUnshared.Median >= worthwhile*one.OfUnshared.Median:
		return what + fmt.Sprintf("for throughput %s, which do %s of the unshared device where 1 slot does %s; for latency 1 slot: an item takes %s "+
			"of its time alone, and %s with %d", best.slots(), best.OfUnshared.share(), one.OfUnshared.share(), percent(one.Latency.Median),
			percent(best.Latency.Median), best.Clients)
	case r.undecided(one):
		return what + "1 slot until more is known; the noise hides whether more slots do more"
	}
	return what + fmt.Sprintf("1 slot, for throughput and latency; it does %s of the unshared device, and more slots no more", one.OfUnshared.share())
}

// simplest is the first row, by clients, that is not clearly behind the best one.
func (r *Report) simplest(one, best Row) Row {
	for _, row := range r.Rows {
		if row.Workload == one.Workload && row.Way == Persistent && row.Clients < best.Clients && !best.OfUnshared.clear(row.OfUnshared) &&
			worthwhile*row.OfUnshared.Median >= best.OfUnshared.Median {
			return row
		}
	}
	return best
}

// saturating reports whether no number of clients does clearly more than one bare process alone.
func (r *Report) saturating(name string) bool {
	return !slices.ContainsFunc(r.Rows, func(row Row) bool {
		return row.Workload == name && row.Clients > 1 && (row.Way == Persistent || row.Way == Bare) &&
			(!row.OfUnshared.known() || row.OfUnshared.High > saturated)
	})
}

// undecided reports whether more clients may do more than one, as far as the intervals tell.
func (r *Report) undecided(one Row) bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool {
		return row.Workload == one.Workload && row.Way == Persistent &&
			(!row.OfUnshared.known() || !one.OfUnshared.known() || row.OfUnshared.High > saturated*one.OfUnshared.Low)
	})
}

// slots is "4 slots of mps".
func (r Row) slots() string { return plural(r.Clients, "slot") + " of " + r.Sharing }

// adviseMemory says what became of the items that passed the budget.
func (r *Report) adviseMemory() {
	row := r.row("oom", Persistent)
	if row == nil {
		return
	}
	if row.failed() == 0 {
		r.Advice = append(r.Advice, "oom items: none failed, so nothing keeps a task within its memory budget here; give budgets that add up to less than the device")
		return
	}
	r.Advice = append(r.Advice, fmt.Sprintf("oom items: an item over its budget costs itself (%s), never its neighbours", outcomeText(*row)))
}

// adviseIsolation says what a process per item costs, and which way to share keeps slots apart.
func (r *Report) adviseIsolation() {
	if !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Way == Fresh && row.measured() }) {
		return
	}
	text := "for isolation: fresh mode has a process per item, for tasks that leak or crash"
	var costs []string
	for _, name := range []string{"light", "medium", "heavy", "detector"} {
		fresh, persistent := r.row(name, Fresh), r.row(name, Persistent)
		if persistent == nil {
			persistent = r.row(name, Sequential)
		}
		if fresh != nil && persistent != nil && fresh.Item.Q1 > persistent.Item.Q3 {
			costs = append(costs, fmt.Sprintf("%s (%s)", seconds(fresh.Item.Median-persistent.Item.Median), name))
		}
	}
	if len(costs) > 0 {
		text += ", and costs an item " + strings.Join(costs, ", ")
	}
	if r.Machine.GPU {
		text += "; sharing mig keeps slots apart best, and under mps a fault of one reaches all on the device"
	}
	r.Advice = append(r.Advice, text)
}

// adviseSmall says what gpumux costs per item and per map, and from which size on an item hides it.
func (r *Report) adviseSmall() {
	for _, name := range []string{"light", "medium", "detector", "heavy"} {
		one, plainly := r.row(name, Sequential), r.bareAlone(name)
		if one == nil || plainly == nil {
			continue
		}
		if cost := 1/one.Rate.Median - 1/plainly.Rate.Median; name == "light" && plainly.Rate.clear(one.Rate) {
			r.Advice = append(r.Advice, fmt.Sprintf("gpumux takes %s per item; items shorter than %s lose more than %.0f%% to it, so put several into one item",
				seconds(cost), seconds(cost/small), small*100))
		}
		break
	}
	// Storing many results takes its time, too, so the map that takes least says most of what every map takes.
	var least *Spread
	for i := range r.Rows {
		if per := &r.Rows[i].PerMap; r.Rows[i].Way == Sequential && per.Count > 0 && (least == nil || per.Median < least.Median) {
			least = per
		}
	}
	if least != nil {
		r.Advice = append(r.Advice, fmt.Sprintf("a map takes %s beside its items (quartiles %s and %s), so give one map many items rather than many maps few",
			seconds(least.Median), seconds(least.Q1), seconds(least.Q3)))
	}
}

// bareAlone is the unshared device.
func (r *Report) bareAlone(name string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Workload == name && row.Way == Bare && row.Clients == 1 })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
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
