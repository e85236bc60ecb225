//go:build !linux

package slot

import (
	"errors"

	"github.com/gpumux/gpumux"
)

var errNoCgroup = errors.New("cgroups exist on Linux only")

// Cgroups makes a cgroup of its own for each task process; there are none on this system.
type Cgroups struct{}

// OpenCgroups says that there are none.
func OpenCgroups() (*Cgroups, error) { return nil, errNoCgroup }

func (*Cgroups) make(gpumux.Size) (*cgroup, error) { return nil, errNoCgroup }

type cgroup struct{}

func (*cgroup) kills() (int, bool, int64) { return 0, false, 0 }
func (*cgroup) close()                    {}

func memoryKills() int { return 0 }
