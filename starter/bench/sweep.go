package bench

import (
	"context"
	"errors"
	"fmt"
)

// worthwhile is by how much throughput must grow for more slots to be worth it.
const worthwhile = 1.05

// slotCounts are the numbers of slots to try: 1, 2, 4, … and most itself.
func slotCounts(most int) []int {
	var counts []int
	for n := 1; n < most; n *= 2 {
		counts = append(counts, n)
	}
	return append(counts, most)
}

// sweep measures a workload with more and more slots until throughput no longer grows. What the ways measured already counts.
func (b *bench) sweep(ctx context.Context, w workload) error {
	known := map[int]*Row{1: b.report.row(w.name, Sequential, 1), b.o.Slots: b.report.row(w.name, Persistent, b.o.Slots)}
	for _, n := range slotCounts(b.o.Slots) {
		row := known[n]
		if row == nil {
			b.o.Say(fmt.Sprintf("%s: %s", label(w.name, w.size), plural(n, "slot")))
			measured, err := b.step(ctx, w, n)
			if err != nil {
				return err
			}
			row = &measured
		}
		b.report.Sweep = append(b.report.Sweep, Step{n, row.Rate})
		if !growing(b.report.Sweep) {
			return nil
		}
	}
	return nil
}

// growing reports whether the last step was worth it.
func growing(steps []Step) bool {
	n := len(steps)
	return n < 2 || steps[n-1].Rate >= steps[n-2].Rate*worthwhile
}

// step measures one number of slots.
func (b *bench) step(ctx context.Context, w workload, slots int) (Row, error) {
	at := seat{pool: "bench", slots: slots, on: b.on, task: w.name}
	worker, err := b.serve(ctx, w, []seat{at})
	if err != nil {
		return Row{}, err
	}
	rate := 1 / w.seconds
	row, err := worker.measure(ctx, w, Persistent, at, b.count(w, rate*float64(slots)/b.crowd(slots), 2*slots))
	return row, errors.Join(err, worker.stop())
}

// enough is the number of slots after which throughput no longer grew by a twentieth; 0 without steps.
func enough(steps []Step) int {
	best := 0
	for i, s := range steps {
		if !growing(steps[:i+1]) {
			break
		}
		best = s.Slots
	}
	return best
}
