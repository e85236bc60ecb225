//go:build !linux

package process

import (
	"errors"

	"github.com/gpumux/gpumux"
)

var errNoCgroup = errors.New("cgroups exist on Linux only")

// Cgroups makes a cgroup for each task process; this system has none.
type Cgroups struct{}

// OpenCgroups says that there are none.
func OpenCgroups() (*Cgroups, error) { return nil, errNoCgroup }

func (*Cgroups) create(gpumux.Size) (*cgroup, error) { return nil, errNoCgroup }

type cgroup struct{}

func (*cgroup) kills() Kills { return Kills{} }
func (*cgroup) close()       {}

func (*cgroup) kill() {}

func MemoryKills() int { return 0 }
