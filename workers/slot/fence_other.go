//go:build !linux

package slot

import (
	"time"

	"go.uber.org/zap"
)

var started = time.Now().Round(0)

// Uptime is the time since this program started, by the wall clock, which goes on while the system sleeps.
func Uptime() time.Duration { return time.Now().Round(0).Sub(started) }

// keeper does nothing here: nobody could end the processes of a stopped program.
type keeper struct{}

func (*keeper) open(string, uint64, *zap.Logger) {}

func (*keeper) ready() error { return nil }

func (*keeper) hold(time.Duration) error { return nil }

func (*keeper) lost() int64 { return 0 }

func (*keeper) lacks() bool { return false }

func (*keeper) close() {}
