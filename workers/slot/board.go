package slot

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

const (
	// aheadTime is how much work a process is given ahead at the beginning of a call, and longAhead later, when that is a small share
	// of what the call has done, an aheadShare; mostAhead is how many items at most. Half of it costs a message both ways, and no other
	// slot can take it if it turns out to be long. Next to an item of longItem the moment in which the next one is on its way is
	// nothing.
	aheadTime  = 8 * time.Millisecond
	longAhead  = 64 * time.Millisecond
	aheadShare = 24
	mostAhead  = 8192
	longItem   = 100 * time.Millisecond
)

// look takes in the results that lie on the process's board up to the offset end. An error is that of a process that is gone.
func (s *Slot) look(p *session, f *flow, end uint64) error {
	records, broken := p.board.Read(end)
	if len(records) > 0 {
		if err := s.posted(p, f, records); err != nil {
			return err
		}
	}
	if broken != nil {
		return s.fail(p, p.broke("%v", broken), "")
	}
	return nil
}

// posted takes in results from the board, of which those of one micro-batch share their peak.
func (s *Slot) posted(p *session, f *flow, records []wire.Record) error {
	now, at := time.Now(), clock()
	busy, peaks, groupPeak := 0.0, int64(0), int64(0)
	for i, r := range records {
		if !f.due(r.Run, r.N) {
			return s.fail(p, p.broke("a result for item %d of run %d on the board, which is not its turn", r.N, r.Run), "")
		}
		value, err := p.text(r.Kind, r.Value)
		if err != nil {
			return s.fail(p, p.broke("the result of item %d of run %d: %v", r.N, r.Run, err), "")
		}
		if i == 0 || r.Ended != records[i-1].Ended {
			together := 0.0
			for _, same := range records[i:] {
				if same.Ended != r.Ended {
					break
				}
				together += same.Busy
			}
			groupPeak = p.peak(now, together, r.Peak)
			peaks = max(peaks, groupPeak)
		}
		busy += r.Busy
		f.finish(p, gpumux.Result{Value: value, Output: p.Out.UpTo(r.Out)}, r.Busy, r.Attempts, groupPeak)
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
	s.ended(p, len(records), busy, peaks)
	return nil
}

// learnPace takes in what an item took, in seconds.
func (p *session) learnPace(busy float64) {
	if took := max(time.Microsecond, duration(busy)); p.pace == 0 {
		p.pace = took
	} else {
		p.pace += (took - p.pace) / 4
	}
}

// ahead is how many items the process is given ahead of its work, of a call of which so many have ended: one until it is known how
// long they take.
func (p *session) ahead(ended int) int {
	most := 1
	if p.pace > 0 && p.pace < longItem {
		work := aheadTime / 2 // what runs ahead may leak past a budget before anybody looks
		if p.memory.tidy.Budget == 0 {
			work = min(longAhead, max(aheadTime, time.Duration(ended)*p.pace/aheadShare))
		}
		most = int(max(2, min(mostAhead, 1+work/p.pace)))
	}
	if p.board == nil {
		most = min(most, frameItems)
	}
	held, _ := p.held()
	p.given = p.memory.tidy.Ahead(held, most)
	return p.given
}

// overdue ends the process of an item that takes too long, or says that the item did end in time after all: what the process
// finished until it was gone counts.
func (s *Slot) overdue(p *session, f *flow, timeout time.Duration) error {
	if err := s.look(p, f, p.board.Published()); err != nil {
		return err
	}
	if len(f.flight) == 0 || time.Since(f.began) < timeout {
		return nil
	}
	e := &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", timeout), Tail: p.Out.Tail()}
	stacks := p.stacks()
	p.charge = s.faultFrom(p, *e)
	p.charge.Traceback = stacks
	p.Destroy()
	if err := s.lapsed(f.call); err != nil {
		return err
	}
	late := f.flight[0]
	if err := s.look(p, f, p.board.Published()); err != nil {
		return err
	}
	if f.due(late.run, late.n) {
		return s.fail(p, e, stacks)
	}
	// It ended between the two looks, and the process in the middle of an innocent one.
	f.held = slices.Concat(f.flight, f.held)
	f.flight = nil
	s.drop("an item ended at the moment of its timeout")
	return nil
}

// text is a value as JSON. The Python runtime encodes JSON itself and needs no check; a program of somebody's own may say
// anything, which no store would take.
func (p *session) text(kind wire.Kind, value json.RawMessage) (json.RawMessage, error) {
	if kind != wire.JSON {
		return kind.Text(value)
	}
	if p.task.Python == "" {
		if err := wire.Check(value); err != nil {
			return nil, fmt.Errorf("%w: %.80q", err, value)
		}
	}
	return value, nil
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
