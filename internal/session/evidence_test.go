package session

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/process"
)

func TestMemory_AKillOfTheKernelIsEvidence(t *testing.T) {
	death := diagnosis.Evidence{Exited: true, Signal: syscall.SIGKILL, Budget: 512 << 20}
	e := death
	killed(&e, process.Kills{Number: 2, Own: true, Peak: 512 << 20}, 2)
	require.True(t, e.OverBudget)
	require.Equal(t, 2, e.OOMKills)
	f := diagnosis.Diagnose(e).Fault
	require.Equal(t, gpumux.FaultBudget, f.Kind)
	require.EqualValues(t, 512<<20, f.Peak)

	// The kernel ran out of memory elsewhere, in the host or the worker's container, and
	// took this process.
	e = death
	killed(&e, process.Kills{Number: 1, Own: false, Peak: 512 << 20}, 1)
	require.False(t, e.OverBudget)
	f = diagnosis.Diagnose(e).Fault
	require.Equal(t, gpumux.FaultHostOOM, f.Kind)
	require.EqualValues(t, 512<<20, f.Peak)

	// The exception of a task whose child was killed.
	e = diagnosis.Evidence{Class: "concurrent.futures.process.BrokenProcessPool", Message: "A process in the process pool was terminated abruptly"}
	killed(&e, process.Kills{Number: 1, Own: false, Peak: 0}, 1)
	require.False(t, e.OverBudget)
	require.Equal(t, gpumux.FaultHostOOM, diagnosis.Diagnose(e).Fault.Kind)

	// Without a cgroup of its own, the counter of the worker's tells the kernel's kill from
	// another.
	e = diagnosis.Evidence{Exited: true, Signal: syscall.SIGKILL}
	killed(&e, process.Kills{}, 0)
	require.Zero(t, e.OOMKills)
	killed(&e, process.Kills{}, 1)
	require.Equal(t, gpumux.FaultHostOOM, diagnosis.Diagnose(e).Fault.Kind)
}
