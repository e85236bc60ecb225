package account

import "time"

const (
	// trimShare is the share of busy time that trims may cost, after-effects included.
	trimShare = 0.05
	// afterwards is how many items after a trim count as slowed down: they fill caches.
	afterwards = 4
)

// bill weighs what trims cost against what items take, in seconds.
type bill struct {
	// earned is the credit for the next trim: a share of the items' time, less the unpaid
	// cost of the last trim. last is that trim's cost.
	earned, last float64
	// usual is the time of an item, of late and not after a trim. The first item does not
	// count, since it loads for the others; began: it has run.
	usual float64
	began bool
	// open is how many of the items after the last trim are still to come.
	open int
}

// ran takes in items that took busy in all.
func (b *bill) ran(items int, busy time.Duration) {
	if items == 0 {
		return
	}
	switch pace := busy.Seconds() / float64(items); {
	case b.open > 0:
		b.open -= min(b.open, items)
		b.pay(max(0, busy.Seconds()-float64(items)*b.usual))
	case b.began && b.usual == 0:
		b.usual = pace
	case b.began:
		b.usual += (pace - b.usual) / 8
	}
	b.began = true
	b.earned = min(b.last, b.earned+trimShare*busy.Seconds())
}

// trimmed takes in a trim; what it costs is known when the next items have run.
func (b *bill) trimmed(took time.Duration) {
	b.last, b.open = 0, afterwards
	b.pay(took.Seconds())
}

func (b *bill) pay(cost float64) {
	b.last += cost
	b.earned -= cost
}

// allows reports whether items have paid for another trim that costs as much as the last
// one.
func (b *bill) allows() bool { return b.open == 0 && b.began && b.earned >= b.last }
