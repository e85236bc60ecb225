package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// cell and quickCell are the time that one run aims for.
	cell      = 3 * time.Second
	quickCell = 350 * time.Millisecond
	// mostItems and mostBareItems bound a run.
	mostItems, mostBareItems = 100_000, 400_000
	// gpumuxRate is items per second that one slot can take of trivial ones, roughly: light is sized by it.
	gpumuxRate = 20_000
	// oomItems are the items of the oom workload, whose faults take time.
	oomItems, quickOOMItems = 3 * breaks, breaks
)

// cell is the time that one run aims for.
func (b *bench) cell() time.Duration {
	if b.o.Quick {
		return quickCell
	}
	return cell
}

// calibrate finds sizes at which a run has enough items, and what an item takes.
func (b *bench) calibrate(ctx context.Context) ([]workload, error) {
	b.o.Say("calibrating")
	memory := b.on.device.Memory
	if b.cpu != nil {
		memory = min(memory, b.cpu.device.Memory)
	}
	var loads []workload
	for _, name := range b.o.names() {
		w := workload{name: name}
		if name == "oom" {
			w.memory = budgetFor(memory, b.o.Slots)
			if w.memory < budget {
				b.note("oom: the budget is %s instead of %s, because this machine has %s", w.memory, gpumux.Size(budget), gpumux.Size(memory))
			}
		}
		limit := fmt.Sprint(b.cell().Seconds() / 4)
		env := environ(b.around[b.o.Slots], w.env(b.on.probe.Framework, 1))
		found := map[string]struct {
			Size, Wanted int
			Seconds      float64
		}{}
		if err := b.ask(ctx, env, &found, "measure", limit, name); err != nil {
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

// crowd is by how much slots side by side slow each other down at worst: on a GPU they share it, on the CPU its processors.
func (b *bench) crowd(slots int) float64 {
	if b.on.gpu() {
		return float64(slots)
	}
	return max(1, float64(slots)/float64(runtime.GOMAXPROCS(0)))
}

// count is the number of items for a run at a rate.
func (b *bench) count(w workload, rate float64, least int) int {
	switch {
	case b.o.Items > 0:
		return b.o.Items
	case w.name == "oom" && b.o.Quick:
		return quickOOMItems
	case w.name == "oom":
		return oomItems
	}
	return min(max(int(rate*b.cell().Seconds()), least), mostItems)
}

// runWorkload runs one workload in every way: bare, as maps, bare again.
func (b *bench) runWorkload(ctx context.Context, w workload) (err error) {
	slots := b.o.Slots
	text := label(w.name, w.size)
	b.o.Say(text + ": bare processes")
	side, err := b.startBare(ctx, b.on, w, slots)
	defer side.close()
	if err != nil {
		return err
	}
	alone := side
	if slots > 1 {
		alone, err = b.startBare(ctx, b.on, w, 1)
		defer alone.close()
		if err != nil {
			return err
		}
	}
	guess := float64(slots) / (w.seconds * b.crowd(slots))
	if err := b.bareRounds(ctx, w, side, alone, guess, 1/w.seconds); err != nil {
		return err
	}
	rows, err := b.maps(ctx, w, side, alone)
	if err != nil {
		return err
	}
	b.o.Say(text + ": bare processes again")
	if err := b.bareRounds(ctx, w, side, alone, side.rate(), alone.rate()); err != nil {
		return err
	}
	if w.name != "oom" && side.unsteady() {
		b.note("%s: bare processes did %s items/s before the maps and %s after; something else uses this machine, so measure again without it",
			text, figure(side.rates[0]), figure(side.rates[1]))
	}
	for _, p := range []*bare{side, alone} {
		row := Row{Workload: w.name, Size: w.size, Way: Bare, Slots: len(p.procs), Items: p.items, Start: p.start.Seconds()}
		row.fill(p.times, p.total)
		b.report.Rows = append(b.report.Rows, row)
		if slots == 1 {
			break
		}
	}
	b.report.Rows = append(b.report.Rows, rows...)
	return nil
}

// bareRounds is one of two rounds of bare processes at rates in items per second.
func (b *bench) bareRounds(ctx context.Context, w workload, side, alone *bare, sideRate, aloneRate float64) error {
	if err := side.round(ctx, b.perProcess(w, sideRate, len(side.procs))); err != nil || alone == side {
		return err
	}
	return alone.round(ctx, b.perProcess(w, aloneRate, 1))
}

// perProcess is the number of items of one process in one of two rounds. Bare processes do a trivial item so fast that they need
// more of them to be measured.
func (b *bench) perProcess(w workload, rate float64, processes int) int {
	n := b.count(w, rate, 4*processes)
	if n == mostItems && b.o.Items == 0 {
		n = mostBareItems
	}
	return max(2, (n+2*processes-1)/(2*processes))
}

// maps runs the workload in all ways that are gpumux's.
func (b *bench) maps(ctx context.Context, w workload, side, alone *bare) (_ []Row, err error) {
	slots := b.o.Slots
	many := seat{pool: "bench", slots: slots, on: b.on, task: w.name}
	one := seat{pool: "bench-one", slots: 1, on: b.on, task: w.name}
	cpu := seat{pool: "bench-cpu", slots: cpuSlots(), on: b.cpu, task: w.name + "-cpu"}
	type run struct {
		way   Way
		at    seat
		items int
	}
	trivial := gpumuxRate * float64(slots)
	fresh := float64(slots) / (side.start.Seconds() + w.seconds*b.crowd(slots))
	runs := []run{
		{Persistent, many, b.count(w, min(side.rate(), trivial), 2*slots)},
		{Fresh, many, b.count(w, fresh, 2*slots)},
	}
	seats := []seat{many}
	if slots > 1 {
		seats = append(seats, one)
		runs = append(runs, run{Sequential, one, b.count(w, min(alone.rate(), gpumuxRate), 4)})
	}
	if b.cpu != nil {
		seats = append(seats, cpu)
		// How fast the CPU is, is only known after the fact; its run has fewer items than the GPU's.
		runs = append(runs, run{OnCPU, cpu, b.count(w, min(side.rate()/20, trivial), 2*cpu.slots)})
	}
	if b.o.Quick && w.name == "oom" {
		seats, runs = []seat{many}, runs[:1] // faults take their time in every way alike
	}
	worker, err := b.serve(ctx, w, seats)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	var rows []Row
	for _, r := range runs {
		b.o.Say(fmt.Sprintf("%s: %s, %s of %d items", label(w.name, w.size), r.way, plural(r.at.slots, "slot"), r.items))
		row, err := worker.measure(ctx, w, r.way, r.at, r.items)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure measures one way.
func (s *served) measure(ctx context.Context, w workload, way Way, at seat, items int) (Row, error) {
	mode := gpumux.Persistent
	if way == Fresh {
		mode = gpumux.Fresh
	}
	start, err := s.warm(ctx, at, mode)
	if err != nil {
		return Row{}, err
	}
	out, err := s.run(ctx, at, gpumux.MapInput{Range: &gpumux.Range{End: int64(items)}, Mode: mode})
	if err != nil {
		return Row{}, err
	}
	row := Row{Workload: w.name, Size: w.size, Way: way, Slots: at.slots, Items: items, Start: start.Seconds(), Faults: out.summary.Faults}
	row.fill(gaps(out.stamps), out.total)
	return row, nil
}

// plural writes a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
