//go:build !linux

package process

import (
	"errors"

	"github.com/gpumux/gpumux"
)

var errNoCgroup = errors.New("cgroups exist on Linux only")

// Cgroups makes a cgroup of its own for each task process; there are none on this system.
type Cgroups struct{}

// OpenCgroups reports whether there are none.
func OpenCgroups() (*Cgroups, error) { return nil, errNoCgroup }

func (*Cgroups) make(gpumux.Size) (*cgroup, error) { return nil, errNoCgroup }

type cgroup struct{}

func (*cgroup) kills() Kills { return Kills{} }
func (*cgroup) close()       {}

func MemoryKills() int { return 0 }
