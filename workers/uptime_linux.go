package workers

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since the system started, sleep included.
func uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // every kernel has this clock
	return time.Duration(now.Nano())
}
