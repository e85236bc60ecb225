package process

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var dedicated atomic.Bool

// Dedicate makes this program one that does nothing but run tasks. It adopts orphaned
// descendants of tasks in place of init, so that they end with their task and templates
// can fork. Its environment and memory, which hold credentials, are hidden from processes
// of the same user: it leaves no core dump, and only root attaches a debugger.
var Dedicate = sync.OnceFunc(func() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	dedicated.Store(true)
	go func() {
		for range time.Tick(reapOrphansEvery) {
			reapOrphans()
		}
	}()
})

// Dedicated reports whether the program adopts orphans; only Linux lets it.
func Dedicated() bool { return dedicated.Load() }
