package slot

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/session"
)

const (
	// aheadTime is how much work a process gets ahead at the beginning of a call. Later it
	// is an aheadShare of what the call has done, up to longAhead and mostAhead items. Half
	// of it costs a message both ways, and no other slot can take slow items.
	aheadTime  = 8 * time.Millisecond
	longAhead  = 64 * time.Millisecond
	aheadShare = 24
	mostAhead  = 8192
	longItem   = 100 * time.Millisecond
	// frameItems is mostAhead for a process without a board.
	frameItems = 64
)

// Reasons for which a process that could go on is replaced.
const (
	forItems = "items" // it ran as many items as its task allows
	forFull  = "full"  // it has grown, and needs most of its budget
)

// account books what a process was given, has done and holds: how many items it gets
// ahead, and when it is replaced. It measures through the session's memory only.
type account struct {
	// limit is how many items the process may run, 0 without limit; sent and ran are how
	// many it was given and has finished.
	limit, sent, ran int
	// frames is how often it was given items, aheadNow how many it was last to get ahead.
	frames   int64
	aheadNow int
	// maxAhead is how many it may get ahead, pace the time that an item takes, of late.
	maxAhead int
	pace     time.Duration
	// batch is the most items that its task takes in one call, concurrent how many it runs
	// at the same time; 0: it takes single items.
	batch, concurrent int
	why, text         string
	memory            *session.Memory
	growth            growth
}

func newAccount(p *session.Session, limit int) *account {
	a := &account{limit: limit, aheadNow: frameItems, maxAhead: frameItems, memory: &p.Memory, growth: growth{budget: int64(p.Memory.Budget)}}
	if p.Board != nil {
		a.maxAhead = mostAhead
	}
	return a
}

// unfit is why the process cannot run a call that may want a fresh process or a clean
// one, or "".
func (a *account) unfit(fresh, clean bool) string {
	switch {
	case a.ran > 0 && (fresh || clean):
		return "a clean process is wanted"
	case a.why != "":
		return a.text
	case a.limit > 0 && a.sent >= a.limit:
		return fmt.Sprintf("recycled after %d items", a.ran)
	case a.limit == 1 && !fresh:
		return "made for one item"
	}
	if fresh {
		a.limit = 1
	}
	return ""
}

// replace lets the process end when it has run the items that it was given.
func (a *account) replace(why, text string) { a.why, a.text, a.limit = why, text, a.sent }

// replaced is why the process is to be replaced although it could go on, or empty.
func (a *account) replaced() (why, text string) {
	if a.why == "" && a.full() {
		return forItems, fmt.Sprintf("ran its %d items", a.ran)
	}
	return a.why, a.text
}

func (a *account) full() bool { return a.limit > 0 && a.ran >= a.limit }

// inBatch is how many items ran at once where one did: those of a micro-batch, 0 where
// the task takes single items.
func (a *account) inBatch() int {
	if a.batch == 0 {
		return 0
	}
	return min(a.batch, a.sent-a.ran)
}

func (a *account) low(inFlight int) bool {
	return inFlight <= a.concurrent+whole(a.aheadNow, a.batch)/2
}

// next is how many items the next frame may have, in whole micro-batches of unit items,
// for a process with so many in flight, in a job with so many results.
func (a *account) next(inFlight, finished int) (n, unit int) {
	n = whole(a.ahead(finished), a.batch)
	if a.concurrent > 0 {
		n += a.concurrent - inFlight // those ahead wait until one of the others ends
	}
	if a.limit > 0 {
		n = min(n, a.limit-a.sent)
	}
	return n, max(1, a.batch)
}

// send books the next frame, and returns its number.
func (a *account) send(items int) int64 {
	a.frames++
	a.sent += items
	return a.frames
}

// ahead is how many items the process gets ahead in a call that has so many results: one
// until it is known how long they take.
func (a *account) ahead(finished int) int {
	ahead := 1
	if a.pace > 0 && a.pace < longItem {
		work := aheadTime / 2 // what runs ahead may leak past a budget before anybody looks
		if a.growth.budget == 0 {
			work = min(longAhead, max(aheadTime, time.Duration(finished)*a.pace/aheadShare))
		}
		ahead = int(max(2, min(mostAhead, 1+work/a.pace)))
	}
	if a.aheadNow = min(ahead, a.maxAhead); a.near() {
		a.aheadNow = 1
	}
	return a.aheadNow
}

// ended books items that took busy seconds in all and needed peak bytes, 0 for unknown.
func (a *account) ended(items int, busy float64, peak int64) {
	if took := max(time.Microsecond, duration(busy/float64(items))); a.pace == 0 {
		a.pace = took
	} else {
		a.pace += (took - a.pace) / 4
	}
	a.measured(a.growth.first == 0, peak)
}

func whole(items, batch int) int {
	if batch == 0 {
		return items
	}
	return (items + batch - 1) / batch * batch
}

type occupant struct {
	session *session.Session
	account *account
	edition string
	// kinds: it takes items with arrays as bytes.
	kinds bool
	// folder is where its items may leave files. unplaced: it could not be made.
	folder   string
	unplaced bool
}

func newOccupant(p *session.Session, limit int) *occupant {
	return &occupant{session: p, account: newAccount(p, limit)}
}

func (p *occupant) exited() bool {
	select {
	case <-p.session.Process.Exited:
		return true
	default:
		return false
	}
}

func (p *occupant) ending() string {
	switch over := p.session.Memory.Over(); {
	case over.Foreign != "":
		return fmt.Sprintf("it held %s on %s, which is not its slot's device", gpumux.Size(over.Held), over.Foreign)
	case over.Left > 0:
		return fmt.Sprintf("the host had %s left, and it held %s, the most of all", gpumux.Size(over.Left), gpumux.Size(over.Held))
	case over.Held > 0:
		return fmt.Sprintf("it held %s, over the budget of %s", gpumux.Size(over.Held), p.session.Memory.Budget)
	}
	return p.session.Process.Status.String()
}
