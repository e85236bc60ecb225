package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpumux/gpumux"
)

// oomItems are the items of the oom workload, whose faults take time.
const oomItems, quickOOMItems = 3 * breaks, breaks

// outOfMemory runs the items of which some pass the budget, once in every way: what becomes of them is no matter of noise.
func (b *bench) outOfMemory(ctx context.Context, w workload) (err error) {
	type run struct {
		way  Way
		mode gpumux.Mode
		at   seat
	}
	most := b.slicedSeat(b.most())
	runs := []run{{Persistent, gpumux.Persistent, most}}
	items := quickOOMItems
	if !b.o.Quick {
		items = oomItems
		runs = append(runs, run{Fresh, gpumux.Fresh, most})
		if b.most() > 1 {
			runs = append(runs, run{Sequential, gpumux.Persistent, b.slicedSeat(1)})
		}
		if b.cpu != nil {
			runs = append(runs, run{OnCPU, gpumux.Persistent, b.cpuSeat()})
		}
	}
	for _, r := range runs {
		b.o.Say(fmt.Sprintf("%s: %s, %d items", w.name, r.at, items))
		row, err := b.outcome(ctx, w, r.at, gpumux.MapInput{Range: &gpumux.Range{End: int64(items)}, Mode: r.mode})
		if err != nil {
			return err
		}
		row.Way = r.way
		b.report.Rows = append(b.report.Rows, row)
	}
	return nil
}

// outcome runs one map in a worker of its own.
func (b *bench) outcome(ctx context.Context, w workload, at seat, in gpumux.MapInput) (_ Row, err error) {
	row := Row{Workload: w.name, Sharing: at.sharing, Clients: at.clients()}
	worker, err := b.serve(ctx, w, []seat{at})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	start, err := worker.warm(ctx, at, in.Mode)
	if err != nil {
		return row, err
	}
	out, err := worker.run(ctx, at, in)
	if err != nil {
		return row, err
	}
	row.Start, row.Items, row.Faults = start.Seconds(), int(out.summary.Items), out.summary.Faults
	return row, nil
}
