package slot

import (
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/session"
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

// occupant is the task process in a slot, and the account of what it was given and has done.
type occupant struct {
	*session.Session
	started time.Time
	// edition is that of its code, modules are the files that it says it has loaded.
	edition string
	modules []string
	// lease is that which it belongs to, target the function that it was loaded with.
	lease, target string
	// limit is how many items it may run, 0 without limit; sent and ran are how many it was given and has finished.
	limit, sent, ran int
	// given is how many items it was last to be given ahead, pace the time that one takes, of late.
	given int
	pace  time.Duration
	batch int
	runs  int64
	// trims says that it understands wire.Trim, trimDue that one waits until no item is in flight.
	trims, trimDue bool
	tidy           hygiene.Hygiene
	// why and text say why it is to be recycled, once it is.
	why  hygiene.Reason
	text string
	// folder is where its items may leave files, once it is there; unplaced says that there can be none.
	folder   string
	unplaced bool
	// charge is what it was killed for, where that is an item's doing.
	charge *gpumux.Fault
}

// newOccupant is a process that has just started, and may run so many items.
func newOccupant(p *session.Session, limit int) *occupant {
	tidy := hygiene.Hygiene{Budget: int64(p.Memory.Budget), Host: p.Memory.Host}
	return &occupant{Session: p, limit: limit, started: time.Now(), given: frameItems, tidy: tidy}
}

// recycle lets the process end when it has run the items that it was given.
func (p *occupant) recycle(why hygiene.Reason, text string) {
	if p.why == "" && p.lease == "" {
		p.why, p.text, p.limit = why, text, p.sent
	}
}

// full reports whether it has run all the items that it may.
func (p *occupant) full() bool { return p.limit > 0 && p.ran >= p.limit }

// learnPace takes in what an item took, in seconds.
func (p *occupant) learnPace(busy float64) {
	if took := max(time.Microsecond, duration(busy)); p.pace == 0 {
		p.pace = took
	} else {
		p.pace += (took - p.pace) / 4
	}
}

// ahead is how many items the process is given ahead of its work, of a call of which so many have ended: one until it is known how
// long they take.
func (p *occupant) ahead(ended int) int {
	most := 1
	if p.pace > 0 && p.pace < longItem {
		work := aheadTime / 2 // what runs ahead may leak past a budget before anybody looks
		if p.tidy.Budget == 0 {
			work = min(longAhead, max(aheadTime, time.Duration(ended)*p.pace/aheadShare))
		}
		most = int(max(2, min(mostAhead, 1+work/p.pace)))
	}
	if p.Board == nil {
		most = min(most, frameItems)
	}
	p.given = most
	if p.tidy.Budget > 0 {
		holding, _ := p.Memory.Lately()
		p.given = p.tidy.Ahead(holding, most)
	}
	return p.given
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
