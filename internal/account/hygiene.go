package account

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/session"
)

const (
	// trimIdle and trimBusy are the shares of the budget from which an idle, a busy process
	// trims.
	trimIdle, trimBusy = 0.5, 0.75
	// leastSpare is the share of the budget that a trim has to promise.
	leastSpare = 0.05
	// full is the share of the budget from which a process is short of memory, goodGain the
	// share that it must have gained since its first item, and that a trim has to free.
	full, goodGain = 0.9, 0.10
	// fewAhead is how many items a process gets ahead when its memory gets short.
	fewAhead = 8
	// sureAhead is how many items prove that they hold less than those before a trim.
	sureAhead = 16
)

// hygiene decides when a task process trims, how many items it gets ahead, and when it is
// recycled for its memory. It is for one goroutine.
type hygiene struct {
	// budget is in bytes; 0 means that there is nothing to decide.
	budget int64
	// host: the budget limits host memory. Nobody tells how much of that is in use, so all
	// growth since the last trim may be garbage.
	host bool
	// lasting: the process is not recycled.
	lasting bool

	bill bill
	// first is the memory needed after the first item, floor the memory left by the last
	// trim, swing the height of recent peaks above the need between items.
	first, floor, swing int64
	// given is how many items the process last got ahead, ran how many it has run.
	given, ran int
	// rate is the growth in bytes per item since from items had run, when base was needed.
	rate, base float64
	from       int
}

// share is the part of the budget that so many bytes are.
func (h *hygiene) share(bytes int64) float64 {
	if h.budget == 0 {
		return 0
	}
	return float64(bytes) / float64(h.budget)
}

// grown reports whether the next item may pass the budget although a new process would
// have room for it: memory has leaked, or garbage lies about.
func (h *hygiene) grown(m session.Holding) bool {
	return !h.lasting && h.first > 0 && h.share(m.Needed()+h.swing) > full && h.share(m.Needed()-h.first) >= goodGain
}

// due reports whether to trim now; idle says that no item waits.
func (h *hygiene) due(m session.Holding, idle bool) bool {
	if h.grown(m) {
		return true
	}
	from, spare := trimBusy, m.Spare
	if idle {
		from = trimIdle
	}
	if h.host {
		spare = m.Held - h.floor
	}
	return h.share(m.Held) >= from && h.share(spare) >= leastSpare && h.bill.allows()
}

// trimmed observes a trim, and says why the process should be recycled, or nothing.
func (h *hygiene) trimmed(before, after session.Holding, took time.Duration) (why string) {
	h.bill.trimmed(took)
	needed := after.Needed()
	h.floor, h.base, h.from = after.Held, float64(needed), h.ran
	if !h.grown(after) || h.share(before.Needed()-needed) >= goodGain {
		return ""
	}
	return fmt.Sprintf("%s of %s are needed between items, and a trim gave little back", gpumux.Size(needed), gpumux.Size(h.budget))
}

// ended observes items that took busy in all. Their highest peak was peak (0: unknown),
// the process now holds m and has run ran items.
func (h *hygiene) ended(ran, items int, busy time.Duration, m session.Holding, peak int64) {
	h.bill.ran(items, busy)
	h.ran = ran
	if h.budget == 0 || m.Held == 0 {
		return
	}
	needed := m.Needed()
	if h.first == 0 {
		h.first, h.base, h.from = needed, float64(needed), ran
	}
	if peak > 0 {
		h.swing += (max(0, peak-needed) - h.swing) / 4
	}
}

// ahead is how many items the process may get ahead, up to most. It starts with one and
// doubles, so a leak shows early, and falls back when memory gets short.
func (h *hygiene) ahead(m session.Holding, most int) int {
	if h.budget == 0 || m.Held == 0 { // no limit, or no measurement
		return most
	}
	needed := m.Needed()
	h.given = min(most, max(1, 2*h.given))
	if h.share(needed) > full {
		h.given = 1
	} else if h.share(needed) >= trimBusy {
		h.given = min(h.given, fewAhead)
	}
	// A quarter of the rest, at the present rate: an error here costs little.
	if n := h.ran - h.from; n > 0 {
		rate := (float64(needed) - h.base) / float64(n)
		if n < sureAhead {
			rate = max(rate, h.rate)
		}
		h.rate = rate
	}
	if h.rate > 0 {
		h.given = max(1, min(h.given, int(float64(h.budget-needed)/4/h.rate)))
	}
	return h.given
}
