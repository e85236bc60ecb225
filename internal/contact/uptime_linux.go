package contact

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the system started, sleep included, whether this runs or not.
func Uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()
