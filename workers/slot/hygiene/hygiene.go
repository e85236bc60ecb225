// Package hygiene decides from sizes and times when a task process trims, how many items it gets ahead and when it is recycled for its
// memory. It measures nothing, ends nothing and runs nothing by itself.
package hygiene

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// trimIdle and trimBusy are the shares of the budget from which a trim is worth it when no item waits, and when items do.
	trimIdle, trimBusy = 0.5, 0.75
	// trimShare is the share of busy time that trims may cost; it doubles for each circumstance that makes them worth more.
	trimShare = 0.05
	// goodYield is the least share of the budget that a good trim frees.
	goodYield = 0.10
	// full is the share of the budget from which poor trims lead to a new process.
	full = 0.9
	// poorTrims is how many poor trims in a row do.
	poorTrims = 2
	// leastGrowth is the growth since the last trim, as a share of the budget, from which another makes sense.
	leastGrowth = 0.05
	// fewAhead is how many items a process gets ahead when its memory gets short, so a trim comes soon.
	fewAhead = 8
	// sureAhead is how many items prove that they hold less than those before a trim.
	sureAhead = 16
)

// Reason is why a process is recycled.
type Reason string

const (
	// ForLeak: what it holds between items grows and would soon exceed the budget.
	ForLeak Reason = "leak"
	// ForFull: it holds most of its budget and trims free little.
	ForFull Reason = "full"
)

// Hygiene decides when a task process trims, how many items it gets ahead, and when it is recycled for its memory. The rule is that of
// CUDA.jl's early collection, applied between calls: trim where pressure is high and the yield is good, for about 5 % of the busy time.
// It is for one goroutine.
type Hygiene struct {
	// Budget is in bytes; 0 means that there is nothing to decide.
	Budget int64
	// busy is the time of items since the last trim, cost the mean time of trims.
	busy, cost time.Duration
	// first is what was held after the first item, floor after the last trim.
	first, floor int64
	// freed is the share of the budget that the last trim freed, poor the number of poor trims in a row.
	freed float64
	poor  int
	// ahead is how many items the process last got ahead, ran how many it has run.
	ahead, ran int
	// rate is the growth in bytes per item since base was held, after from items: the first one, or those before the last trim.
	rate, base float64
	from       int
	trend      trend
	// Leak describes a suspected leak. Garbage looks the same until it is collected, so a trim has to prove it.
	Leak string
}

func (h *Hygiene) pressure(held int64) float64 {
	if h.Budget == 0 {
		return 0
	}
	return float64(held) / float64(h.Budget)
}

// Due reports whether to trim now, with held bytes in use; idle says that no item waits.
func (h *Hygiene) Due(held int64, idle bool) bool {
	if h.Leak != "" {
		return true
	}
	pressure, from := h.pressure(held), trimBusy
	if idle {
		from = trimIdle
	}
	if pressure < from || h.busy == 0 {
		return false
	}
	if h.floor > 0 && held-h.floor < int64(leastGrowth*float64(h.Budget)) && pressure <= full {
		return false
	}
	share := trimShare
	for _, worth := range []bool{h.freed > goodYield, idle, pressure > 0.9, pressure > 0.95} {
		if worth {
			share *= 2
		}
	}
	return float64(h.cost) <= share*float64(h.busy)
}

// Hard reports whether the next trim should drop caches that cost time to fill again: the last one freed little.
func (h *Hygiene) Hard() bool { return h.poor > 0 }

// Trimmed observes a trim. It says why the process should be recycled, or nothing.
func (h *Hygiene) Trimmed(before, after int64, took time.Duration) (why Reason, text string) {
	h.freed = max(0, h.pressure(before-after))
	if h.cost == 0 {
		h.cost = took
	} else {
		h.cost = h.cost*3/4 + took/4
	}
	h.busy, h.floor = 0, after
	h.base, h.from = float64(after), h.ran
	if text, h.Leak = h.Leak, ""; text != "" && float64(before-after) < h.trend.rise()/2 {
		return ForLeak, text
	}
	if h.freed >= goodYield {
		h.trend.forget()
	}
	if h.freed >= goodYield || h.pressure(after) <= full {
		h.poor = 0
		return "", ""
	}
	h.poor++
	// One that needed as much after its first item would need it again.
	if h.poor < poorTrims || h.pressure(after-h.first) < goodYield {
		return "", ""
	}
	return ForFull, fmt.Sprintf("%s of %s are held, and %d trims in a row gave little back",
		gpumux.Size(after), gpumux.Size(h.Budget), h.poor)
}

// Ended observes an item that took busy and peaked at peak (0: unknown), after which held bytes were in use (0: unknown). ran is how many
// items the process has run.
func (h *Hygiene) Ended(ran int, busy time.Duration, held, peak int64) {
	h.busy += busy
	h.ran = ran
	if h.Budget == 0 || held == 0 {
		return
	}
	if h.first == 0 {
		h.first = held
		h.base, h.from = float64(held), ran
	}
	h.trend.observe(ran, held, peak)
	slope, rising := h.trend.slope()
	if !rising || h.pressure(held) < trimIdle || h.trend.rise() < goodYield*float64(h.Budget) {
		return
	}
	// The items on their way, and as many again as make the trend certain.
	soon := max(h.ahead, ran/8, 4)
	if float64(held)+float64(h.trend.swing)+slope*float64(soon) < float64(h.Budget) {
		return
	}
	h.Leak = fmt.Sprintf("%s of %s are held between items, %s more with each; the budget would be passed within %d items",
		gpumux.Size(held), gpumux.Size(h.Budget), gpumux.Size(slope), soon)
}

// Ahead is how many items the process may get ahead, at most most. It starts with one and doubles, so a leak shows before the process
// has more items than its budget allows, and falls back when memory gets short.
func (h *Hygiene) Ahead(held int64, most int) int {
	if h.Budget == 0 || held == 0 { // no limit, or no measurement
		return most
	}
	h.ahead = min(most, max(1, 2*h.ahead))
	if h.pressure(held) > full {
		h.ahead = 1
	} else if h.pressure(held) >= trimBusy {
		h.ahead = min(h.ahead, fewAhead)
	}
	// A quarter of the rest, at the present rate, certain or not: an error here costs little.
	if n := h.ran - h.from; n > 0 {
		rate := (float64(held) - h.base) / float64(n)
		if n < sureAhead {
			rate = max(rate, h.rate)
		}
		h.rate = rate
	}
	if h.rate > 0 {
		h.ahead = max(1, min(h.ahead, int(float64(h.Budget-held)/4/h.rate)))
	}
	return h.ahead
}
