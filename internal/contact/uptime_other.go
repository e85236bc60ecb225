//go:build !linux

package contact

import "time"

var started = time.Now().Round(0)

// Uptime is the time since this program started, by the wall clock.
func Uptime() time.Duration { return time.Now().Round(0).Sub(started) }
