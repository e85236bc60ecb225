package slot

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/session"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// readBoard takes in the results that lie on the process's board up to the offset end. An error is that of a process that is gone.
func (s *Slot) readBoard(p *occupant, f *flow, end uint64) error {
	records, broken := p.Board.Read(end)
	if len(records) > 0 {
		if err := s.posted(p, f, records); err != nil {
			return err
		}
	}
	if broken != nil {
		return s.fail(p, diagnosis.Broken("%v", broken), "")
	}
	return nil
}

// posted takes in results from the board, of which those of one micro-batch share their peak.
func (s *Slot) posted(p *occupant, f *flow, records []wire.Record) error {
	now, at := time.Now(), session.Clock()
	busy, peaks, groupPeak := 0.0, int64(0), int64(0)
	for i, r := range records {
		if !f.due(r.Run, r.N) {
			return s.fail(p, diagnosis.Broken("a result for item %d of run %d on the board, which is not its turn", r.N, r.Run), "")
		}
		result, err := f.result(p.Task, r.Kind, r.Value)
		if err != nil {
			return s.fail(p, diagnosis.Broken("the result of item %d of run %d: %v", r.N, r.Run, err), "")
		}
		if i == 0 || r.Ended != records[i-1].Ended {
			together := 0.0
			for _, same := range records[i:] {
				if same.Ended != r.Ended {
					break
				}
				together += same.Busy
			}
			groupPeak = p.Memory.PeakOf(now, duration(together), r.Peak)
			peaks = max(peaks, groupPeak)
		}
		busy += r.Busy
		result.Output = p.Out.UpTo(r.Out)
		f.finish(p, result, r.Busy, r.Attempts, groupPeak)
	}
	// The item that runs began when the last one ended, however late that is read here, or was sent after that.
	ended := now.Add(-duration(at - records[len(records)-1].Ended))
	if len(f.flight) > 0 && ended.Before(f.flight[0].sent) {
		ended = f.flight[0].sent
	}
	if !ended.Before(f.began) && ended.Before(now) {
		f.began = ended
	} else {
		f.began = now
	}
	p.learnPace(busy / float64(len(records)))
	s.account(p, len(records), busy, peaks)
	return nil
}

// results takes in the values of a frame.
func (s *Slot) results(p *occupant, f *flow, m wire.Results) error {
	if !f.due(m.Run, m.N) || len(m.Values) > len(f.flight) {
		return s.fail(p, diagnosis.Broken("results for item %d of run %d, which is not its turn", m.N, m.Run), "")
	}
	// The process may go on while large values become JSON here.
	if err := s.goOn(p, f, m.Wait); err != nil {
		return err
	}
	results := make([]gpumux.Result, len(m.Values))
	for i, value := range m.Values {
		kind := wire.JSON
		if m.Kinds != nil {
			kind = m.Kinds[i]
		}
		var err error
		if results[i], err = f.result(p.Task, kind, value); err != nil {
			return s.fail(p, diagnosis.Broken("the result of item %d of run %d: %v", m.N+i, m.Run, err), "")
		}
	}
	if err := s.keepFiles(p, f, m); err != nil {
		return err
	}
	results[0].Files = m.Files
	text, busy := p.Out.UpTo(m.Out), 0.0
	for _, each := range m.Busy {
		busy += each
	}
	now := time.Now()
	peak := p.Memory.PeakOf(now, duration(busy), m.Peak)
	for i, result := range results {
		tries := 1
		if m.Attempts != nil {
			tries = m.Attempts[i]
		}
		result.Output, text = text, ""
		f.finish(p, result, m.Busy[i], tries, peak)
	}
	if !m.Wait {
		f.began = now
	}
	p.learnPace(busy / float64(len(results)))
	s.account(p, len(results), busy, peak)
	return nil
}

// raised decides what an exception means: the item's own fault, one more try, or the end of the process.
func (s *Slot) raised(p *occupant, f *flow, m wire.Fault) error {
	e := diagnosis.Raised(m.Raised)
	text := p.Out.UpTo(m.Out)
	e.Tail = text
	p.ExplainMemory(e, s.kills)
	d := diagnosis.Diagnose(*e)
	if d.Poisoned || d.Fault.Kind.Deadly() {
		return s.fail(p, e, m.Raised.Traceback)
	}
	fault := d.Fault
	s.locate(&fault, p.Task)
	fault.Traceback, fault.PID = m.Raised.Traceback, p.PID
	f.blame(&fault)
	item := f.flight[0]
	fault.Attempts = item.tries + max(1, m.Attempts)
	if f.fresh && fault.Attempts < f.call.attempts() {
		item.tries++
		f.flight = f.flight[1:]
		f.waiting = append([]flying{item}, f.waiting...)
		p.ran++
		return nil
	}
	peak := p.Memory.PeakOf(time.Now(), duration(m.Busy), m.Peak)
	f.finish(p, gpumux.Result{Fault: &fault, Output: text}, m.Busy, fault.Attempts, peak)
	s.account(p, 1, m.Busy, peak)
	return s.goOn(p, f, true)
}

// result is a value of a task: as JSON, or with its arrays as bytes where the call takes them so. The Python runtime encodes JSON itself
// and needs no check; a program of somebody's own may say anything, which no store would take.
func (f *flow) result(task launch.Task, kind wire.Kind, value json.RawMessage) (r gpumux.Result, err error) {
	if f.call.Arrays {
		if r.Arrays = kind.Arrays(value); r.Arrays != nil && task.Python == "" {
			err = arrays.Check(r.Arrays)
		}
		if r.Arrays != nil {
			return r, err
		}
	}
	if r.Value, err = kind.Text(value); err == nil && task.Python == "" && (kind == wire.JSON || kind == wire.Mixed) {
		if err = wire.Check(r.Value); err != nil {
			err = fmt.Errorf("%w: %.80q", err, value)
		}
	}
	return r, err
}
