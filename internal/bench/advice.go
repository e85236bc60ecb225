package bench

import (
	"fmt"
	"slices"
)

const (
	// small is the share of an item's time that gpumux may take without a word of advice.
	small = 0.05
	// saturated bounds the throughput of many clients, as a multiple of one client's, where
	// they do no more.
	saturated = 1.1
	// worthwhile is the factor by which more clients must raise the throughput.
	worthwhile = 1.05
)

func (r *Report) advise() {
	for _, name := range Workloads {
		if one := r.row(name, Sequential); one != nil && one.measured() {
			r.Advice = append(r.Advice, one.label()+": "+r.adviseClients(*one))
		}
	}
	r.adviseSmall()
}

// row finds the last row of a workload that ran in this way with the default sharing, so
// the one with most clients; nil without one.
func (r *Report) row(name string, way Way) (found *Row) {
	for i, row := range r.Rows {
		if row.Workload == name && row.Way == way && row.Sharing == timeSliced {
			found = &r.Rows[i]
		}
	}
	return found
}

// adviseClients names the number of clients for the most throughput and for the least
// latency.
func (r *Report) adviseClients(one Row) string {
	best, many, undecided := one, []Row{}, false
	for _, row := range r.Rows {
		if row.Workload != one.Workload || row.Way != Persistent {
			continue
		}
		share := row.OfUnshared
		many = append(many, row)
		if share.Median > best.OfUnshared.Median {
			best = row
		}
		undecided = undecided || !share.known() || !one.OfUnshared.known() || share.Q3 > saturated*one.OfUnshared.Q1
	}
	if cpu := r.row(one.Workload, OnCPU); cpu != nil && cpu.OfUnshared.above(best.OfUnshared) {
		return fmt.Sprintf("the CPU; it does %s of the unshared GPU, and the GPU's slots %s", cpu.OfUnshared.share(), best.OfUnshared.share())
	}
	if len(many) == 0 {
		return fmt.Sprintf("1 slot does %s of the unshared device; measure more clients to see whether sharing helps", one.OfUnshared.share())
	}
	// Among the rows not clearly behind the best, the fewest slots are enough.
	for _, row := range many {
		if row.Clients < best.Clients && !best.OfUnshared.above(row.OfUnshared) && worthwhile*row.OfUnshared.Median >= best.OfUnshared.Median {
			best = row
			break
		}
	}
	switch {
	case best.OfUnshared.above(one.OfUnshared) && best.OfUnshared.Median >= worthwhile*one.OfUnshared.Median:
		return fmt.Sprintf("for throughput %d slots of %s, which do %s of the unshared device where 1 slot does %s; "+
			"for latency 1 slot: an item takes %s of its time alone, and %s with %d", best.Clients, best.Sharing, best.OfUnshared.share(),
			one.OfUnshared.share(), percent(one.Latency.Median), percent(best.Latency.Median), best.Clients)
	case undecided:
		return "1 slot until more is known; the noise hides whether more slots do more: measure while nothing else runs here, or for longer"
	}
	return fmt.Sprintf("1 slot, for throughput and latency; it does %s of the unshared device, and more slots no more", one.OfUnshared.share())
}

// share is "93% (91%-95%)".
func (q Quartiles) share() string {
	return fmt.Sprintf("%s (%s)", percent(q.Median), q.between(percent))
}

// adviseSmall says what gpumux costs per item, and from which size on an item hides it.
func (r *Report) adviseSmall() {
	one := r.row("light", Sequential)
	at := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Workload == "light" && row.Way == Bare && row.Clients == 1 })
	if one != nil && at >= 0 && r.Rows[at].Rate.above(one.Rate) {
		cost := 1/one.Rate.Median - 1/r.Rows[at].Rate.Median
		r.Advice = append(r.Advice, fmt.Sprintf("gpumux takes %s per item; items shorter than %s lose more than %.0f%% to it, so put several into one item",
			seconds(cost), seconds(cost/small), small*100))
	}
}
