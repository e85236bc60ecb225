package contact

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the system started, including the time that it slept. While this program is stopped, it goes on.
func Uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()
