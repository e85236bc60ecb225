package slot

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/internal/wire"
)

// answers takes what a process says about the items in flight, in messages and on its
// board, and hands results on to their calls.
type answers struct {
	job    *job
	slot   *Slot
	p      *occupant
	flight *flight
}

func (a *answers) say(m wire.Message) error {
	if !a.p.session.Say(m) {
		return broken("it asks for more than it reads")
	}
	return nil
}

// publish shows others which item runs: of several, the one that was sent first.
func (a *answers) publish() {
	if len(a.flight.items) == 0 {
		a.slot.runs("", 0, time.Time{})
		return
	}
	first := &a.flight.items[0]
	a.slot.runs(first.call.Map, first.Index, first.began)
}

// hear takes in one message; nil is the end of the wire.
func (a *answers) hear(message wire.Message) error {
	switch m := message.(type) {
	case wire.Posted:
		if err := a.read(m.Board, m.Allocators); err != nil || !m.Wait {
			return err
		}
		return a.goOn()
	case wire.Results:
		if err := a.read(m.Board, m.Allocators); err != nil {
			return err
		}
		return a.results(m)
	case wire.Fault:
		if err := a.read(m.Board, m.Allocators); err != nil {
			return err
		}
		if a.p.session.Leaving(m) {
			return nil
		}
		return a.raised(m)
	case wire.Canceled:
		if err := a.read(m.Board, nil); err != nil {
			return err
		}
		a.canceled(m.Runs)
	case wire.ProgressReport:
		if err := a.read(m.Board, nil); err != nil {
			return err
		}
		a.progressed(m)
	case wire.Cap:
		a.p.session.Capped(m)
	default:
		if message != nil {
			return broken("a message out of turn: %T", message)
		}
		death := &deathError{evidence: a.p.session.Death(nil)}
		// Items that it finished before its end count.
		if err := a.look(); err != nil {
			return err
		}
		if len(a.flight.items) > 0 {
			return death
		}
		return &lostError{"ended between two items"}
	}
	return nil
}

// progressed restarts the clock of an item, and shows how far it is if it is the one that
// others see. What a process says of itself restarts none: an item of it may hang.
func (a *answers) progressed(m wire.ProgressReport) {
	at := 0
	if m.Run == 0 {
		a.slot.progressed(m.Value, false)
		return
	}
	if a.flight.concurrent > 0 {
		at = a.flight.find(m.Run, m.N)
	}
	if at < 0 || at >= len(a.flight.items) {
		return
	}
	a.flight.items[at].began = time.Now()
	if at == 0 && string(m.Value) != "null" {
		a.publish()
		a.slot.progressed(m.Value, true)
	}
}

// canceled takes in that no item of these runs is under way any more.
func (a *answers) canceled(runs []int64) {
	for range a.flight.forget(runs) {
		a.p.account.ran++
	}
	for _, each := range slices.Clone(a.job.calls.list) {
		if !each.canceled.IsZero() && each.inFlight == 0 {
			a.job.calls.end(each, context.Cause(each.ctx))
		}
	}
	a.flight.begin(time.Now())
}

func (a *answers) look() error { return a.read(a.p.session.Board.Published(), nil) }

// read reads the board up to the offset end, and stores the report on allocators that
// came with it.
func (a *answers) read(end uint64, allocators *wire.Allocators) error {
	a.p.session.Memory.Report(allocators)
	records, wrong := a.p.session.Board.Read(end)
	if err := a.answered(records, nil); err != nil {
		return err
	}
	if wrong != nil {
		return broken("%v", wrong)
	}
	return nil
}

// results takes in the values of a frame. The process may go on meanwhile.
func (a *answers) results(m wire.Results) error {
	at := a.flight.find(m.Run, m.N)
	if at < 0 || len(m.Values) > len(a.flight.items)-at {
		return broken("results for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	if m.Wait {
		if err := a.goOn(); err != nil {
			return err
		}
	}
	if len(m.Files) > 0 {
		err := a.keep(&a.flight.items[at], m.Files)
		if err != nil && a.job.calls.ctx.Err() == nil && a.flight.items[at].call.ctx.Err() != nil {
			a.flight.drop(at) // its call ends, but not the process
			a.p.account.ran++
			return nil
		}
		if err != nil {
			return err
		}
	}
	return a.answered(m.Records(), m.Files)
}

func (a *answers) keep(one *item, names []string) error {
	name, keep := fmt.Sprintf("%d-%d", one.run, one.n), one.call.Work.Keep
	if a.p.folder == "" || keep == nil {
		return broken("item %s has files, and was given no folder for them", name)
	}
	err := eachFile(a.p.folder, name, names, func(name string, file *os.File) error {
		return keep(one.call.ctx, one.Index, name, file)
	})
	return cmp.Or(err, a.job.calls.held())
}

// answered hands on results. Those of one micro-batch ended together and share their
// peak. The files belong to the first item.
func (a *answers) answered(records []wire.Record, files []string) error {
	if len(records) == 0 {
		return nil
	}
	now, clock := time.Now(), session.Clock()
	busy, peaks, peak, began := 0.0, int64(0), int64(0), time.Time{}
	if len(a.flight.items) > 0 {
		began = a.flight.items[0].began
	}
	for i, r := range records {
		found := a.flight.find(r.Run, r.N)
		if found < 0 {
			return broken("a result for item %d of run %d on the board, which is not its turn", r.N, r.Run)
		}
		each := a.flight.items[found].call
		result, err := resultOf(a.p.session.Task, each.Arrays, r)
		if err != nil {
			return broken("the result of item %d of run %d: %v", r.N, r.Run, err)
		}
		if i == 0 || r.Ended != records[i-1].Ended {
			together := 0.0
			for _, same := range records[i:] {
				if same.Ended != r.Ended {
					break
				}
				together += same.Busy
			}
			peak = a.p.session.Memory.PeakOf(now, duration(together), r.Peak)
			peaks = max(peaks, peak)
		}
		busy += r.Busy
		result.Printed, result.Files, files = a.p.session.Process.Out.UpTo(r.Out), files, nil
		a.finish(found, result, r.Busy, peak)
	}
	a.p.account.ended(len(records), busy, peaks)
	a.slot.tally(func(st *Stats) { st.Items += int64(len(records)) })
	if a.flight.concurrent > 0 {
		a.flight.begin(now)
		return nil
	}
	// The next item began when the last one ended by the process's clock, but not before it
	// was sent.
	ended := now.Add(-duration(clock - records[len(records)-1].Ended))
	if len(a.flight.items) > 0 {
		if next := &a.flight.items[0]; ended.Before(next.sent) {
			ended = next.sent
		}
	}
	if ended.Before(began) || !ended.Before(now) {
		ended = now // as of a result in a message, which does not say when
	}
	a.flight.begin(ended)
	return nil
}

func (a *answers) finish(at int, r gpumux.Result, busy float64, peak int64) {
	each := a.flight.items[at].call
	r.Index = a.flight.items[at].Index
	a.flight.drop(at)
	a.p.account.ran++
	a.job.finished++
	each.done(calls.Done{Result: r, Busy: duration(busy), Peak: peak, Budget: int64(a.p.session.Memory.Budget),
		Concurrent: a.flight.concurrent > 0})
}

// raised decides what an exception means: the item's own fault, one more try, or the end
// of the process.
func (a *answers) raised(m wire.Fault) error {
	at := a.flight.find(m.Run, m.N)
	if at < 0 {
		return broken("a fault for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	running := a.flight.items[at]
	fault, output, death := a.job.judge.raised(a.p, m, &running)
	if death != nil {
		return death
	}
	if a.job.fresh && !fault.Final && fault.Attempts < running.call.Attempts {
		running.tries++
		a.flight.drop(at)
		running.call.queue.back(running)
		a.p.account.ran++
		return nil
	}
	peak := a.p.session.Memory.PeakOf(time.Now(), duration(m.Busy), m.Peak)
	a.finish(at, gpumux.Result{Fault: fault, Printed: output}, m.Busy, peak)
	a.p.account.ended(1, m.Busy, peak)
	a.slot.tally(func(st *Stats) { st.Items++ })
	return a.goOn()
}

// goOn tells a process that waits for its results to be read that it may go on.
func (a *answers) goOn() error {
	now := time.Now()
	if a.flight.concurrent == 0 && len(a.flight.items) > 0 {
		a.flight.items[0].began = now
	}
	a.flight.begin(now)
	return a.say(wire.Next{})
}

// resultOf makes a result of a value: JSON, or with its arrays as bytes where the call
// takes them so. The Python runtime encodes JSON itself and needs no check. Another
// program may send what no store takes, so its values are checked.
func resultOf(task launch.Task, asArrays bool, record wire.Record) (r gpumux.Result, err error) {
	foreign := task.Python == ""
	if asArrays {
		if r.Arrays = record.Arrays(); r.Arrays != nil {
			if foreign {
				err = arrays.Check(r.Arrays)
			}
			return r, err
		}
	}
	r.Value, err = record.Kind.Text(record.Value)
	if err == nil && foreign && (record.Kind == wire.JSON || record.Kind == wire.Mixed) && !text.Valid(r.Value) {
		err = fmt.Errorf("it is not JSON: %.80q", record.Value)
	}
	return r, err
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
