package slot

import (
	"time"

	"github.com/gpumux/gpumux/workers/slot/account"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// Recycles are the reasons for which a process is recycled.
func Recycles() []string {
	return []string{account.ForItems, account.ForAge, account.ForLeak, account.ForFull}
}

// Stats are what a slot has done since it began.
type Stats struct {
	// Processes were started; Items were finished in them, commands included.
	Processes, Items int64
	// Held is what the present process and its descendants hold, in bytes; 0 means unknown.
	Held int64
	// Trims are clean-ups between items, TrimTime what they took, Freed the bytes that they gave back.
	Trims    int64
	TrimTime time.Duration
	Freed    int64
	// Recycled counts processes that were replaced although they could go on, by reason: items, age, leak, full.
	Recycled map[string]int64
	// Residents are how many values the present process keeps for a lease, ResidentBytes the bytes of their arrays.
	Residents     int
	ResidentBytes int64
	// Running is the item that runs; nil where none does.
	Running *Running
}

// Running is an item that runs, or the first of a micro-batch that does.
type Running struct {
	// Index is -1 in a call of a lease.
	Index int64
	Began time.Time
	// Progress is the beginning of the JSON that it reported last.
	Progress string
	// Out is what its process prints, of which what is not yet read is the item's; nil while there is no process.
	Out *process.Output
}
