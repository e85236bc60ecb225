// Package hygiene decides from sizes and times when a task process trims, how many items it is given ahead and when it is recycled for
// its memory. It measures nothing, ends nothing, and is for one goroutine.
package hygiene

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// tidyIdle and tidyBusy are the shares of the budget from which it is worth trimming when nobody waits, and when work does.
	tidyIdle, tidyBusy = 0.5, 0.75
	// tidyShare is the share of busy time that trims may cost; it doubles for each circumstance that makes them worth more.
	tidyShare = 0.05
	// goodYield is the share of the budget that a trim gives back when it was worth it, and less than which it was not.
	goodYield = 0.10
	// full is the share of the budget at which trims that give little back lead to a new process.
	full = 0.9
	// poorTrims is how many such trims in a row do.
	poorTrims = 2
	// leastGrowth is by how much of the budget what is held must have grown since the last trim for another to make sense.
	leastGrowth = 0.05
	// fewAhead is how many items a process is given ahead when its memory gets short, so that a trim comes soon.
	fewAhead = 8
	// sureAhead is how many items it takes to believe that they hold less than those before a trim did.
	sureAhead = 16
)

// Reason is why a process is recycled.
type Reason string

const (
	// ForLeak: what it holds between items grows and would have passed the budget soon.
	ForLeak Reason = "leak"
	// ForFull: it holds most of its budget and trims give little back.
	ForFull Reason = "full"
)

// Hygiene decides when a task process trims, how many items it is given ahead, and when it is recycled for its memory. It is
// the rule of CUDA.jl's early collection, with the gap between calls in the place of a thread that is about to block: clean up
// where pressure is high and the yield is good, for about 5 % of the busy time.
type Hygiene struct {
	// Budget is in bytes; 0 means that there is nothing to decide.
	Budget int64
	// busy is the time that items took since the last trim, cost a mean of what trims took.
	busy, cost time.Duration
	// first is what was held after the first item, floor after the last trim.
	first, floor int64
	// freed is the share of the budget that the last trim gave back, poor the number of poor trims in a row.
	freed float64
	poor  int
	// given is how many items the process was last given ahead, ran how many it has run.
	given, ran int
	// rate is by how many bytes each item made what is held grow since base was held, after from items: the first one, or those
	// before the last trim.
	rate, base float64
	from       int
	trend      trend
	// Leak says what looks like one. Garbage does too, until it is collected, so that a trim has to prove it.
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
	pressure, from := h.pressure(held), tidyBusy
	if idle {
		from = tidyIdle
	}
	if pressure < from || h.busy == 0 {
		return false
	}
	if h.floor > 0 && held-h.floor < int64(leastGrowth*float64(h.Budget)) && pressure <= full {
		return false
	}
	share := tidyShare
	for _, worth := range []bool{h.freed > goodYield, idle, pressure > 0.9, pressure > 0.95} {
		if worth {
			share *= 2
		}
	}
	return float64(h.cost) <= share*float64(h.busy)
}

// Hard reports that the next trim should take what is costly to make again: the last one gave little back.
func (h *Hygiene) Hard() bool { return h.poor > 0 }

// Trimmed takes in a trim. It says why the process should be recycled, or nothing.
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

// Ended takes in an item that took busy and peaked at peak (0: unknown), after which held bytes were in use (0: unknown). ran
// is how many items the process has run.
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
	h.trend.add(ran, held, peak)
	slope, rising := h.trend.slope()
	if !rising || h.pressure(held) < tidyIdle || h.trend.rise() < goodYield*float64(h.Budget) {
		return
	}
	// As many items again as make a sure fit, and those that are on their way.
	soon := max(h.given, ran/8, 4)
	if float64(held)+float64(h.trend.swing)+slope*float64(soon) < float64(h.Budget) {
		return
	}
	h.Leak = fmt.Sprintf("%s of %s are held between items, %s more with each; the budget would be passed within %d items",
		gpumux.Size(held), gpumux.Size(h.Budget), gpumux.Size(slope), soon)
}

// Ahead is how many items the process may be given ahead of its work, at most most. It starts with one and doubles, so that one
// that leaks is found out before it holds more items than its budget can take, and falls back when memory gets short.
func (h *Hygiene) Ahead(held int64, most int) int {
	if h.Budget == 0 || held == 0 { // nobody limits, or nobody measures
		return most
	}
	h.given = min(most, max(1, 2*h.given))
	if h.pressure(held) > full {
		h.given = 1
	} else if h.pressure(held) >= tidyBusy {
		h.given = min(h.given, fewAhead)
	}
	// A quarter of what is left, at the rate at which it goes, sure or not: to be wrong here costs little.
	if n := h.ran - h.from; n > 0 {
		rate := (float64(held) - h.base) / float64(n)
		if n < sureAhead {
			rate = max(rate, h.rate)
		}
		h.rate = rate
	}
	if h.rate > 0 {
		h.given = max(1, min(h.given, int(float64(h.Budget-held)/4/h.rate)))
	}
	return h.given
}
