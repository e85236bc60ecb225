package contact

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the system started, sleep included.
func Uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every kernel has this clock
	return time.Duration(now.Nano())
}
