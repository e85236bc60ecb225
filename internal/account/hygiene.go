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
	// leastSpare is the share of the budget that a trim has to promise, leastNear when full.
	leastSpare, leastNear = 0.05, 0.01
	// goodYield is the least share of the budget that a good trim frees.
	goodYield = 0.10
	// full is the share of the budget from which poor trims lead to a new process.
	full = 0.9
	// poorTrims is how many poor trims in a row do.
	poorTrims = 2
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
	// host says that the budget is one of host memory, of which nobody tells what is in use:
	// all that came since the last trim may be garbage.
	host bool

	bill bill
	// first is what was needed after the first item, floor what the last trim left.
	first, floor int64
	// poor is the number of poor trims in a row.
	poor int
	// given is how many items the process last got ahead, ran how many it has run.
	given, ran int
	// rate is the growth in bytes per item since from items had run, when base was needed.
	rate, base float64
	from       int
	trend      trend
	// leak describes a suspected leak. Garbage looks the same, so a trim has to prove it.
	leak string
}

// share is the part of the budget that so many bytes are.
func (h *hygiene) share(bytes int64) float64 {
	if h.budget == 0 {
		return 0
	}
	return float64(bytes) / float64(h.budget)
}

// due reports whether to trim now; idle says that no item waits.
func (h *hygiene) due(m session.Holding, idle bool) bool {
	if h.leak != "" {
		return true
	}
	from, least := trimBusy, leastSpare
	if idle {
		from = trimIdle
	}
	if h.share(m.Needed()) > full {
		least = leastNear
	}
	spare := m.Spare
	if h.host {
		spare = m.Held - h.floor
	}
	return h.share(m.Held) >= from && h.share(spare) >= least && h.bill.allows()
}

// trimmed observes a trim. It says why the process should be recycled, or nothing.
func (h *hygiene) trimmed(before, after session.Holding, took time.Duration) (why string, text string) {
	h.bill.trimmed(took)
	needed, freed := after.Needed(), before.Needed()-after.Needed()
	h.floor = after.Held
	h.base, h.from = float64(needed), h.ran
	if text, h.leak = h.leak, ""; text != "" && float64(freed) < h.trend.rise()/2 {
		return ForLeak, text
	}
	good := h.share(freed) >= goodYield
	if good {
		h.trend.forget()
	}
	if good || h.share(needed) <= full {
		h.poor = 0
		return "", ""
	}
	h.poor++
	// One that needed as much after its first item would need it again.
	if h.poor < poorTrims || h.share(needed-h.first) < goodYield {
		return "", ""
	}
	return ForFull, fmt.Sprintf("%s of %s are needed, and %d trims in a row gave little back",
		gpumux.Size(needed), gpumux.Size(h.budget), h.poor)
}

// ended observes so many items that took busy in all, of which one peaked at peak (0:
// unknown), and after which the process holds m. ran is how many items it has run.
func (h *hygiene) ended(ran, items int, busy time.Duration, m session.Holding, peak int64) {
	h.bill.ran(items, busy)
	h.ran = ran
	if h.budget == 0 || m.Held == 0 {
		return
	}
	needed := m.Needed()
	if h.first == 0 {
		h.first = needed
		h.base, h.from = float64(needed), ran
	}
	h.trend.observe(ran, needed, peak)
	slope, rising := h.trend.slope()
	if !rising || h.share(needed) < trimIdle || h.trend.rise() < goodYield*float64(h.budget) {
		return
	}
	// The items on their way, and as many again as make the trend certain.
	soon := max(h.given, h.trend.items()/8, 4)
	if float64(needed)+float64(h.trend.swing)+slope*float64(soon) < float64(h.budget) {
		return
	}
	h.leak = fmt.Sprintf("%s of %s are needed between items, %s more with each; the budget would be passed within %d items",
		gpumux.Size(needed), gpumux.Size(h.budget), gpumux.Size(slope), soon)
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
