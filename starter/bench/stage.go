package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// piece and quickPiece are the time that one run aims for, limit and quickLimit what a stage may take.
	piece, quickPiece = 500 * time.Millisecond, 250 * time.Millisecond
	limit, quickLimit = 30 * time.Second, 10 * time.Second
	// patience is how much longer a stage has while its slots have not once worked at the same time.
	patience = 30 * time.Second
	// leastItems of a client in a piece give it a steady state. A chunk has mostItems, and bare processes do trivial items so fast that
	// they need more of them to be measured.
	leastItems, mostItems, mostBareItems = 4, gpumux.MaxChunk, 250_000
	// leastFreshItems are fewer, since a process can take seconds to start.
	leastFreshItems = 2
	// trivialRate is what one slot does of trivial items, roughly.
	trivialRate = 50_000
)

// stage is a workload with a number of clients under one way to share the device, beside bare processes.
type stage struct {
	b     *bench
	w     workload
	at    seat
	alone *measured // the unshared device
	side  *measured // as many bare processes as clients, or nil
	slots *measured
	// fresh are the slots with a process per item, where the stage shows those.
	fresh *measured
	// cold leaves out the round that warms up.
	cold bool
	// turns are the ways in the order of a round.
	turns []*measured
}

// measured is one way with what its pieces came to, round by round.
type measured struct {
	way     Way
	clients int
	start   time.Duration
	// items of the next piece, per client.
	items   int
	samples []sample
	piece   func(ctx context.Context, items int) (sample, error)
}

// runStage measures a stage and adds its rows to the report.
func (b *bench) runStage(ctx context.Context, w workload, at seat) (err error) {
	b.o.Say(fmt.Sprintf("%s: %s", label(w.name, w.size), at))
	s := &stage{b: b, w: w, at: at}
	worker, err := b.serve(ctx, w, []seat{at})
	if err != nil {
		return b.excuse(ctx, at, err)
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	alone, err := b.startBare(ctx, b.on, w, 1)
	defer alone.close()
	if err != nil {
		return err
	}
	s.alone = s.add(Bare, 1, alone.start, 1/w.seconds, alone.round)
	switch {
	case at.clients() == 1 && at.on == b.on:
		s.side = s.alone
	case at.sharing != mig && at.on == b.on: // bare processes share no instances
		side, err := b.startBare(ctx, b.on, w, at.clients())
		defer side.close()
		if err != nil {
			return err
		}
		s.side = s.add(Bare, at.clients(), side.start, 1/w.seconds/b.crowd(at.clients()), side.round)
	}
	if err := s.addSlots(ctx, worker); err != nil {
		return err
	}
	if err := s.rounds(ctx); err != nil {
		return err
	}
	b.report.Rows = append(b.report.Rows, s.rows()...)
	if s.fresh == nil {
		return nil
	}
	return s.runFresh(ctx)
}

// runFresh measures fresh processes beside bare ones, apart from the others: they end the processes that are warm.
func (s *stage) runFresh(ctx context.Context) error {
	again := func(m *measured) *measured {
		if m == nil {
			return nil
		}
		other := *m
		other.samples = nil
		return &other
	}
	f := &stage{b: s.b, w: s.w, at: s.at, alone: again(s.alone), slots: s.fresh, cold: true}
	f.turns = []*measured{f.alone, f.slots}
	if f.side = f.alone; s.side != s.alone {
		if f.side = again(s.side); f.side != nil {
			f.turns = append(f.turns, f.side)
		}
	}
	if err := f.rounds(ctx); err != nil {
		return err
	}
	for _, row := range f.rows() {
		if row.Way == Fresh {
			s.b.report.Rows = append(s.b.report.Rows, row)
		}
	}
	return nil
}

// add makes a way take part, from what one of its clients probably does per second.
func (s *stage) add(way Way, clients int, start time.Duration, rate float64, run func(context.Context, int) (sample, error)) *measured {
	m := &measured{way: way, clients: clients, start: start, piece: run}
	m.size(s.b, rate)
	s.turns = append(s.turns, m)
	return m
}

// addSlots makes the slots take part, with fresh processes too where the stage is the one that shows those.
func (s *stage) addSlots(ctx context.Context, worker *served) error {
	clients := s.at.clients()
	run := func(mode gpumux.Mode) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, items int) (sample, error) {
			out, err := worker.run(ctx, s.at, gpumux.MapInput{
				Range: &gpumux.Range{End: int64(items * clients)}, Mode: mode, Chunk: items, Window: clients,
			})
			return sampleOf(out.stamps, clients, out.total), err
		}
	}
	start, err := worker.warm(ctx, s.at, gpumux.Persistent)
	if err != nil {
		return err
	}
	way := Persistent
	switch {
	case s.at.on != s.b.on:
		way = OnCPU
	case clients == 1:
		way = Sequential
	}
	rate := min(1/s.w.seconds/s.b.crowd(clients), trivialRate)
	if way == OnCPU {
		rate /= 20 // how fast the CPU is, is only known after the fact
	}
	s.slots = s.add(way, clients, start, rate, run(gpumux.Persistent))
	if !s.at.fresh {
		return nil
	}
	if start, err = worker.warm(ctx, s.at, gpumux.Fresh); err != nil {
		return err
	}
	s.fresh = s.add(Fresh, clients, start, 1/(start.Seconds()+1/rate), run(gpumux.Fresh))
	s.turns = s.turns[:len(s.turns)-1]
	return nil
}

// size makes the next piece take its time at a rate of each client.
func (m *measured) size(b *bench, rate float64) {
	length, least, most := piece, leastItems, mostItems
	if b.o.Quick {
		length = quickPiece
	}
	switch m.way {
	case Bare:
		most = mostBareItems
	case Fresh:
		least = leastFreshItems
	}
	m.items = min(max(int(rate*length.Seconds()), least), most)
}

// rounds lets the ways take turns until their shares are known well enough, or the time is up.
func (s *stage) rounds(ctx context.Context) error {
	until := time.Now().Add(s.b.o.Limit)
	first := 0
	if s.cold {
		first = 1
	}
	for round := first; ; round++ {
		turns := slices.Clone(s.turns)
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, m := range turns {
			if err := m.turn(ctx, s.b); err != nil {
				return err
			}
		}
		if round == 0 {
			for _, m := range s.turns {
				m.samples = nil
			}
			continue
		}
		known := spread(shareOf(s.slots, s.alone))
		over := time.Now().After(until) && (known.Count > 0 || time.Now().After(until.Add(patience)))
		within := "?"
		if known.known() {
			within = percent(known.within())
		}
		s.b.o.Round(fmt.Sprintf("%s: %s, round %d, ±%s", label(s.w.name, s.w.size), s.at, round, within))
		if over || known.narrow() && (s.side == nil || spread(shareOf(s.slots, s.side)).narrow()) {
			return nil
		}
	}
}

// turn runs a piece and sizes the next one by it.
func (m *measured) turn(ctx context.Context, b *bench) error {
	began := time.Now()
	one, err := m.piece(ctx, m.items)
	if err != nil {
		return err
	}
	m.samples = append(m.samples, one)
	if one.rate > 0 {
		m.size(b, one.rate/float64(m.clients))
	} else {
		// The slots hardly worked side by side. A longer piece helps, but none that takes far longer than it should.
		m.items = min(int(max(1, min(4, 4*piece.Seconds()/time.Since(began).Seconds()))*float64(m.items)), mostItems)
	}
	return nil
}

// rates are the throughputs round by round.
func (m *measured) rates() (rates []float64) {
	for _, one := range m.samples {
		rates = append(rates, one.rate)
	}
	return rates
}

// latencies are the medians of the items' times round by round.
func (m *measured) latencies() (seconds []float64) {
	for _, one := range m.samples {
		seconds = append(seconds, median(one.times).Seconds())
	}
	return seconds
}

// shareOf is the throughput of a way as a share of another's, round by round.
func shareOf(m, base *measured) []float64 { return over(m.rates(), base.rates()) }

// rows are the ways of the stage; the unshared device is a row of the stage with one client alone.
func (s *stage) rows() (rows []Row) {
	for _, m := range s.turns {
		if m == s.alone && s.side != s.alone || m == s.side && s.at.sharing != timeSliced {
			continue
		}
		row := Row{Workload: s.w.name, Size: s.w.size, Way: m.way, Clients: m.clients, Start: m.start.Seconds(),
			Unshared: spread(s.alone.rates()), OfUnshared: spread(shareOf(m, s.alone)), Latency: spread(over(m.latencies(), s.alone.latencies()))}
		if m.way != Bare {
			row.Sharing = s.at.sharing
		}
		if s.side != nil && m.way != Bare {
			row.OfBare = spread(shareOf(m, s.side))
		}
		row.fill(m.samples)
		rows = append(rows, row)
	}
	return rows
}
