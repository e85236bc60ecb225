package kernelcheck

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// scarce leaves the host so little memory. What is taken is in files that nobody can be killed for.
func scarce(t *testing.T, free int64) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=100%,mode=700"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	file, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	block := make([]byte, mib)
	for memory(t, "MemAvailable") > free {
		_, err = file.Write(block)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())
}

// exhausted checks the fault of an item that was killed for want of memory that was not its budget's: by the kernel, or by the
// worker's own watch over the host's memory, which mostly comes first.
func exhausted(t *testing.T, f *gpumux.Fault, limit string) {
	t.Helper()
	require.NotNil(t, f)
	t.Log(f)
	require.Equal(t, gpumux.HostOOM, f.Kind)
	require.Equal(t, "signal SIGKILL", f.Exit)
	require.NotEmpty(t, f.Hint)
	is, met := killed(t, f.PID)
	if strings.HasPrefix(f.Message, "the host had ") {
		require.False(t, is)
		return
	}
	require.True(t, is)
	require.Equal(t, limit, met)
}

// Without any budget the whole host runs out. The kernel takes the task process, whose item has a fault then, and not the worker or
// the template.
func TestKernel_AHostThatRunsOutLosesATaskProcess(t *testing.T) {
	s := inMachine(t)
	worker := s.worker(box(t, ""), "slots: 2", "")
	// More than there is the kernel would refuse at once.
	all := int(memory(t, "MemTotal")/mib) - 16
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		t.Run(string(mode), func(t *testing.T) {
			list := []object{{"mb": 1}, {"mb": 2}, {"mb": all}, {"mb": 3}}
			results := s.on(t).mapped(1, list, "--mode", string(mode))
			for _, i := range []int{0, 1, 3} {
				took(t, list[i], results[i])
			}
			exhausted(t, results[2].Fault, "")
			require.True(t, worker.alive())
		})
	}
	templates := 0
	for line := range strings.Lines(worker.stderr.String()) {
		var said struct {
			Msg string
			PID int
		}
		if json.Unmarshal([]byte(line), &said) == nil && strings.HasPrefix(said.Msg, "template ready") {
			templates++
			is, _ := killed(t, said.PID)
			require.False(t, is, "a template goes after the task processes")
		}
	}
	require.Positive(t, templates)
	require.NotContains(t, worker.stderr.String(), "a template ended")

	// A small task process goes before a worker that holds more.
	item := object{"mb": 1}
	pid := took(t, item, s.mapped(0, []object{item})[0])
	require.Greater(t, score(t, pid), score(t, worker.Process.Pid)+100)
}

// A task process that kept to its budget is not blamed for it when the host runs out.
func TestKernel_AHostThatRunsOutIsNotTheBudget(t *testing.T) {
	s := inMachine(t)
	worker := s.worker(handOver(t, box(t, "")), "slots: 1, memory: 400MiB", byKernel)
	scarce(t, 250*mib)
	list := []object{{"mb": 1}, {"mb": 370}, {"mb": 2}}
	results := s.mapped(1, list)
	took(t, list[0], results[0])
	took(t, list[2], results[2])
	exhausted(t, results[1].Fault, "")
	require.Less(t, results[1].Fault.Peak, results[1].Fault.Budget)
	require.True(t, worker.alive())
}

// A container's limit holds the worker as well; it is a task process that meets it.
func TestKernel_AContainerThatRunsOutLosesATaskProcess(t *testing.T) {
	s := inMachine(t)
	home := handOver(t, box(t, "400M"))
	worker := s.worker(home, "slots: 1, memory: 390MiB", byKernel)
	list := []object{{"mb": 1}, {"mb": 370}, {"mb": 2}}
	results := s.mapped(1, list)
	took(t, list[0], results[0])
	took(t, list[2], results[2])
	exhausted(t, results[1].Fault, strings.TrimPrefix(home, cgroups))
	require.Less(t, results[1].Fault.Peak, results[1].Fault.Budget)
	require.True(t, worker.alive())
}
