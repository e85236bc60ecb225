package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// rounds and quickRounds are the rounds of a stage, where its limit allows.
	rounds, quickRounds = 9, 6
	// leastItems of a client give a piece a steady state. Fresh processes take fewer,
	// since each can take seconds to start; bare ones take more trivial items than a
	// chunk has.
	leastItems, leastFreshItems = 4, 2
	mostItems, mostBareItems    = gpumux.MaxChunk, 250_000
	// oomItems are few, since faults take time. One in five passes the budget.
	oomItems = 10
)

// runStage measures a workload in a pool, beside bare processes, and reports its rows.
func (b *bench) runStage(ctx context.Context, workload string, at seat) (err error) {
	row := Row{Workload: workload, Size: b.size(workload), Way: at.way, Sharing: at.sharing, Clients: at.clients()}
	b.Say(row.label() + ": " + row.name())
	worker, err := b.serve(ctx, workload, at)
	if err != nil {
		if ctx.Err() != nil || at.sharing == timeSliced && at.clients() == 1 {
			return err // nothing can be measured without this pool
		}
		b.lacks(at.sharing, err.Error())
		return nil
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	env, err := worker.warm(ctx)
	if err != nil {
		return err
	}
	if workload == "oom" { // once: what becomes of the items is no matter of noise
		out, err := worker.run(ctx, gpumux.MapInput{Range: &gpumux.Range{End: oomItems}})
		row.Items, row.Faults = int(out.summary.Items), out.summary.Faults
		b.report.Rows = append(b.report.Rows, row)
		return err
	}
	slots := &lane{row: row, least: leastItems, most: mostItems, run: worker.piece}
	if at.way == Fresh {
		slots.least = leastFreshItems
	}
	if at.sharing == timeSliced && at.on == b.on {
		b.around[at.clients()] = env
	}
	alone, stopAlone, err := b.bareLane(ctx, row, 1)
	defer stopAlone()
	if err != nil {
		return err
	}
	lanes := []*lane{alone, slots}
	var beside *lane
	switch {
	case at.on != b.on || at.sharing == mig || b.around[at.clients()] == nil:
		// Bare processes share no instances, and none on the GPU is like slots on the
		// CPU.
	case at.clients() == 1:
		beside = alone
	default:
		var stop func()
		beside, stop, err = b.bareLane(ctx, row, at.clients())
		defer stop()
		if err != nil {
			return err
		}
		lanes = append(lanes, beside)
	}
	if err := b.takeTurns(ctx, lanes); err != nil {
		return err
	}
	if beside != nil && at.sharing == timeSliced && at.way != Fresh {
		b.report.Rows = append(b.report.Rows, beside.result(alone, nil))
	}
	b.report.Rows = append(b.report.Rows, slots.result(alone, beside))
	return nil
}

// bareLane is bare processes side by side; the caller stops them, also after an error.
func (b *bench) bareLane(ctx context.Context, row Row, clients int) (*lane, func(), error) {
	p, err := b.startBare(ctx, row.Workload, clients)
	row.Way, row.Sharing, row.Clients = Bare, "", clients
	return &lane{row: row, least: leastItems, most: mostBareItems, run: p.piece}, p.close, err
}

// takeTurns warms the ways up and runs the rounds, as many as the limit allows, but
// until all were measured in one of them.
func (b *bench) takeTurns(ctx context.Context, lanes []*lane) error {
	until := time.Now().Add(b.Limit)
	count, length := rounds, 500*time.Millisecond
	if b.Quick {
		count, length = quickRounds, 250*time.Millisecond
	}
	for _, l := range lanes {
		l.items = l.least
		for before := 0; l.items >= 2*before && (before == 0 || time.Now().Before(until)); {
			before = l.items
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		l.samples = nil
	}
	complete := false
	for round := 0; round < count && (time.Now().Before(until) || !complete); round++ {
		turns := slices.Clone(lanes)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, l := range turns {
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		complete = complete || !slices.ContainsFunc(lanes, func(l *lane) bool { return l.samples[round].rate == 0 })
	}
	return nil
}

// lane is one way that takes turns, with what its pieces came to, round by round.
type lane struct {
	row         Row
	items       int // of the next piece, per client
	least, most int
	samples     []sample
	run         func(ctx context.Context, items int) (sample, error)
}

// turn runs a piece and sizes the next one by it.
func (l *lane) turn(ctx context.Context, length time.Duration) error {
	began := time.Now()
	one, err := l.run(ctx, l.items)
	if err != nil {
		return err
	}
	l.samples = append(l.samples, one)
	items := one.rate / float64(l.row.Clients) * length.Seconds()
	if one.rate == 0 {
		// The slots hardly worked at the same time. A longer piece helps, up to four
		// times its length.
		items = float64(l.items) * min(8, max(1, 4*length.Seconds()/time.Since(began).Seconds()))
	}
	l.items = min(max(int(items), l.least), l.most)
	return nil
}

// result is the row of a way beside the unshared device, and beside as many bare
// processes or nil.
func (l *lane) result(alone, beside *lane) Row {
	item := func(s sample) float64 { return s.item }
	row, times := l.row, []float64{}
	for _, one := range l.samples {
		times = append(times, one.times...)
	}
	row.Items, row.Item = len(times), quartiles(times)
	row.Rate, row.PerMap = quartiles(l.figures(rate)), quartiles(l.figures(func(s sample) float64 { return s.perMap }))
	row.OfUnshared = l.share(alone)
	row.Latency = quartiles(ratios(l.figures(item), alone.figures(item)))
	if beside != nil {
		row.OfBare = l.share(beside)
	}
	return row
}

func rate(s sample) float64 { return s.rate }

// share is the throughput as a share of another way's, round by round.
func (l *lane) share(base *lane) Quartiles {
	return quartiles(ratios(l.figures(rate), base.figures(rate)))
}

func (l *lane) figures(of func(sample) float64) (values []float64) {
	for _, one := range l.samples {
		values = append(values, of(one))
	}
	return values
}
