//go:build !linux && !darwin

package gpu

import (
	"errors"
	"fmt"
)

type host struct{}

var thisHost host

func (host) cpuName() string { return "" }

func (host) memory() (Memory, error) {
	return Memory{}, fmt.Errorf("not known on %s: %w", platform, errors.ErrUnsupported)
}

// HostPIDs reports whether this process sees the host's process numbers.
func HostPIDs() bool { return true }
