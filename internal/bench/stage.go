package bench

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// rounds and quickRounds are the rounds of a stage, where its limit allows.
	rounds, quickRounds = 9, 6
	// minItems of a client give a piece a steady state. Fresh processes take fewer,
	// since each can take seconds to start; bare ones take more trivial items than a
	// chunk has.
	minItems, minFreshItems = 4, 2
	maxItems, maxBareItems  = gpumux.MaxChunk, 250_000
	// oomItems are few, since faults take time. One in five passes the budget.
	oomItems = 10
)

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
	slots := &lane{row: row, least: minItems, most: maxItems, run: worker.piece}
	if at.way == Fresh {
		slots.least = minFreshItems
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
	return &lane{row: row, least: minItems, most: maxBareItems, run: p.piece}, p.close, err
}

// takeTurns warms the lanes up and runs the rounds, as many as the limit allows, and goes
// on beyond it until one round has measured every lane.
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

// result compares a lane with one bare process alone and with as many bare processes,
// where those ran.
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

// stamp is when a call of the task began and ended, and in which slot or bare process.
type stamp struct {
	Slot  string `json:"slot"`
	Began int64  `json:"began"` // nanoseconds since 1970
	Ended int64  `json:"ended"`
	// Env is the environment of the slot, told by items that warm it up.
	Env map[string]string `json:"env"`
}

// sample is the result of one piece, in seconds; 0 stands for unknown.
type sample struct {
	// rate is items per second in the steady state; 0 where the slots hardly worked at
	// the same time.
	rate float64
	// times are those between the ends of consecutive items of a slot, item their median.
	times []float64
	item  float64
	// perMap is a map's time before its first item and after its last one.
	perMap float64
}

// sampleOf is the sample of a piece. The total of bare processes is 0.
func sampleOf(stamps []stamp, slots int, total time.Duration) (out sample) {
	bySlot := map[string][]stamp{}
	for _, s := range stamps {
		bySlot[s.Slot] = append(bySlot[s.Slot], s)
	}
	first, last := int64(math.MaxInt64), int64(0)
	for _, calls := range bySlot {
		slices.SortFunc(calls, func(a, b stamp) int { return cmp.Compare(a.Ended, b.Ended) })
		first, last = min(first, calls[0].Began), max(last, calls[len(calls)-1].Ended)
		for i := 1; i < len(calls); i++ {
			out.times = append(out.times, float64(calls[i].Ended-calls[i-1].Ended)/1e9)
		}
	}
	out.item = median(out.times)
	if total > 0 && len(stamps) > 0 {
		out.perMap = max(0, total-time.Duration(last-first)).Seconds()
	}
	if len(bySlot) == slots {
		out.rate = steady(bySlot)
	}
	return out
}

// steady is items per second while all slots work. Items that lie across the borders of
// that time count in part. It is 0 where that time is under a third of the whole.
func steady(bySlot map[string][]stamp) (rate float64) {
	began, ended := int64(0), int64(math.MaxInt64)
	earliest, latest := int64(math.MaxInt64), int64(0)
	for _, calls := range bySlot {
		first, last := calls[0].Ended, calls[len(calls)-1].Ended
		began, ended = max(began, first), min(ended, last)
		earliest, latest = min(earliest, first), max(latest, last)
	}
	if ended <= began || 3*(ended-began) < latest-earliest {
		return 0
	}
	for _, calls := range bySlot {
		rate += (done(calls, ended) - done(calls, began)) / time.Duration(ended-began).Seconds()
	}
	return rate
}

// done is the number of items that a slot had done at a time, with the part of the one
// that ran then.
func done(calls []stamp, at int64) float64 {
	i, found := slices.BinarySearchFunc(calls, at, func(s stamp, at int64) int { return cmp.Compare(s.Ended, at) })
	if found || i == 0 || i == len(calls) {
		return float64(i)
	}
	before, after := calls[i-1].Ended, calls[i].Ended
	return float64(i-1) + float64(at-before)/float64(after-before)
}

// Quartiles of repeated measurements.
type Quartiles struct {
	Q1     float64 `json:"q1"`
	Median float64 `json:"median"`
	Q3     float64 `json:"q3"`
	// Count is the number of measurements.
	Count int `json:"count"`
}

// quartiles of the measurements that are not 0.
func quartiles(values []float64) Quartiles {
	sorted := slices.Sorted(slices.Values(values))
	sorted = slices.DeleteFunc(sorted, func(value float64) bool { return value == 0 })
	return Quartiles{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75), len(sorted)}
}

// known reports whether the quartiles say anything: with six rounds and equal ways one is
// above the other in 7 % of comparisons, with nine in 3 %.
func (q Quartiles) known() bool { return q.Count >= quickRounds }

// above reports whether q lies above other, apart from it.
func (q Quartiles) above(other Quartiles) bool { return q.known() && other.known() && q.Q1 > other.Q3 }

// ratios are the quotients of measurements made in turn; 0 where one was not measured.
func ratios(values, base []float64) []float64 {
	quotients := make([]float64, len(values))
	for i := range values {
		if base[i] > 0 {
			quotients[i] = values[i] / base[i]
		}
	}
	return quotients
}

// quantile lies between the two values next to it; 0 without values.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := p * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// median is the middle of the values that are not 0.
func median(values []float64) float64 { return quartiles(values).Median }
