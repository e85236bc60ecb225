package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gpumux/gpumux"
)

const (
	// compareItems are the trivial items of a comparison, compareActivities how many of them are an activity each.
	compareItems, quickCompareItems           = 100_000, 10_000
	compareActivities, quickCompareActivities = 3000, 500
	// compareRounds is how often the tools take turns.
	compareRounds = 3
)

// compare runs trivial items through gpumux and through other tools, in turns.
func (b *bench) compare(ctx context.Context) (err error) {
	c := &Comparison{Items: compareItems, Activities: compareActivities, Slots: b.most()}
	rounds := compareRounds
	if b.o.Quick {
		c.Items, c.Activities, rounds = quickCompareItems, quickCompareActivities, 1
	}
	w := workload{name: "light"}
	at := b.slicedSeat(b.most())
	worker, err := b.serve(ctx, w, []seat{at})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	if _, err := worker.warm(ctx, at, gpumux.Persistent); err != nil {
		return err
	}
	temporal, err := startPlain(b.o.Client)
	if err != nil {
		return err
	}
	defer temporal.worker.Stop()
	if _, err := temporal.rate(ctx, 100, b.o.Hard); err != nil { // warms its pollers up
		return err
	}
	for round := range rounds {
		say := func(tool string) { b.o.Say(fmt.Sprintf("round %d of %d: %s", round+1, rounds, tool)) }
		var r ComparisonRound
		say("gpumux")
		out, err := worker.run(ctx, at, gpumux.MapInput{Range: &gpumux.Range{End: int64(c.Items)}})
		if err != nil {
			return err
		}
		r.Gpumux = float64(c.Items) / out.total.Seconds()
		say("multiprocessing.Pool")
		var took struct{ One, Default float64 }
		if err := b.ask(ctx, environ(b.around[b.most()]), &took, "pool", strconv.Itoa(b.most()), strconv.Itoa(c.Items)); err != nil {
			return err
		}
		r.PoolOne, r.PoolDefault = float64(c.Items)/took.One, float64(c.Items)/took.Default
		say("Dask")
		var dask struct{ Took float64 }
		if err := b.ask(ctx, environ(b.around[b.most()]), &dask, "dask", strconv.Itoa(b.most()), strconv.Itoa(c.Activities)); err != nil {
			return err
		}
		if dask.Took > 0 {
			r.Dask = float64(c.Activities) / dask.Took
		}
		say("an activity per item")
		if r.Activity, err = temporal.rate(ctx, c.Activities, b.o.Hard); err != nil {
			return err
		}
		c.Rounds = append(c.Rounds, r)
	}
	b.report.Comparison = c
	return nil
}

// rates are the medians over the rounds, and ratios those of gpumux against each tool within a round.
func (c *Comparison) rates() (rates, ratios ComparisonRound) {
	for _, tool := range []func(*ComparisonRound) *float64{
		func(r *ComparisonRound) *float64 { return &r.Gpumux },
		func(r *ComparisonRound) *float64 { return &r.PoolOne },
		func(r *ComparisonRound) *float64 { return &r.PoolDefault },
		func(r *ComparisonRound) *float64 { return &r.Dask },
		func(r *ComparisonRound) *float64 { return &r.Activity },
	} {
		var its, gpumuxes []float64
		for _, r := range c.Rounds {
			rate := *tool(&r)
			its = append(its, rate)
			if rate > 0 { // Dask may not be installed
				gpumuxes = append(gpumuxes, r.Gpumux/rate)
			}
		}
		*tool(&rates), *tool(&ratios) = median(its), median(gpumuxes)
	}
	return rates, ratios
}
