package account

import (
	"slices"
	"time"
)

const (
	// trimShare is the share of busy time that trims may cost, after-effects included.
	trimShare = 0.05
	// afterwards is how many items after a trim count as slowed down: they fill caches.
	afterwards = 4
	// lately is how many measurements tell what an item takes otherwise.
	lately = 16
	// mostCostly bounds the doublings of the wait.
	mostCostly = 16
)

// bill weighs what trims cost against what items take, in seconds.
type bill struct {
	// busy is the time of items since the last trim, owed what trims cost beyond their share
	// by then, less than 0 where the next one is paid for, last what the last one cost.
	busy, owed, last float64
	// paces are what items took, lately and not after a trim.
	paces []float64
	next  int
	// usual is their median at the last trim, took what that took, excess by how much longer
	// than usual items took since, open how many of them are still to come.
	usual, took, excess float64
	open                int
	// costly is how many trims in a row cost more afterwards than they took.
	costly int
}

// ran takes in items that took busy in all.
func (b *bill) ran(items int, busy time.Duration) {
	if items == 0 {
		return
	}
	b.busy += busy.Seconds()
	if b.open == 0 {
		b.learn(busy.Seconds() / float64(items))
		return
	}
	b.excess += busy.Seconds() - float64(items)*b.usual
	if b.open -= min(b.open, items); b.open == 0 {
		b.settle()
	}
}

func (b *bill) learn(pace float64) {
	if len(b.paces) < lately {
		b.paces = append(b.paces, pace)
		return
	}
	b.paces[b.next] = pace
	b.next = (b.next + 1) % lately
}

// trimmed takes in a trim; what it costs is known when the next items have run.
func (b *bill) trimmed(took time.Duration) {
	if b.open > 0 {
		b.settle()
	}
	b.owed = max(-b.last, b.owed-b.share()*b.busy)
	b.busy, b.took, b.excess, b.open = 0, took.Seconds(), 0, afterwards
	if len(b.paces) > 0 {
		b.usual = slices.Sorted(slices.Values(b.paces))[len(b.paces)/2]
	}
}

// settle adds what the last trim came to.
func (b *bill) settle() {
	b.open = 0
	b.last = b.took + max(0, b.excess)
	b.owed += b.last
	if b.excess > b.took {
		b.costly = min(b.costly+1, mostCostly)
	} else {
		b.costly = 0
	}
}

// share halves with each trim that showed that the process needs what it gave back.
func (b *bill) share() float64 { return trimShare / float64(int(1)<<b.costly) }

// allows reports whether another trim that costs as much as the last one stays within the
// share.
func (b *bill) allows() bool {
	return b.open == 0 && b.busy > 0 && b.owed+b.last <= b.share()*b.busy
}
