package slot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/skip"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// TestSlot_FaultsOfHostMemory lets the kernel's out-of-memory killer end a task process in a cgroup that the slot does not know.
// The fault of such a kill says where to look.
func TestSlot_FaultsOfHostMemory(t *testing.T) {
	t.Parallel()
	cgroup := limitedCgroup(t, 64<<20)
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		t.Run(string(mode), func(t *testing.T) {
			s := newStand(t, mode)
			got, err := s.run(slot.Call{Task: s.task("item", "CGROUP", cgroup), Items: values(
				object{"i": 0}, object{"i": 1, "end": "host_memory"}, object{"i": 2},
			)})
			f := s.dead(err, ending{how: "host_memory", exit: "signal SIGKILL"}, gpumux.Crash, "run")
			require.Equal(t, []int{0}, numbers(t, got))
			require.Contains(t, f.Hint, "out-of-memory killer")
			s.works()
		})
	}
}

// limitedCgroup makes a cgroup with a limit on memory, if the machine allows it.
func limitedCgroup(t *testing.T, limit int) string {
	t.Helper()
	for root, file := range map[string]string{
		"/sys/fs/cgroup/memory": "memory.limit_in_bytes", // version 1
		"/sys/fs/cgroup":        "memory.max",            // version 2
	} {
		dir := filepath.Join(root, fmt.Sprintf("gpumux-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
		// If this is not the kernel's folder, the file is missing, and the test must not make it.
		limits, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = limits.Write(fmt.Append(nil, limit))
		if errors.Join(err, limits.Close()) == nil {
			return dir
		}
	}
	skip.Because(t, skip.Cgroups, "none with a limit on memory can be made")
	return ""
}

// With a limit of the kernel, the kernel ends at once what passes the budget. No watch is needed.
func TestSlot_TheKernelEndsWhatPassesItsBudget(t *testing.T) {
	cgroups, err := process.OpenCgroups()
	if err != nil {
		skip.Because(t, skip.Cgroups, "they must be of version 2, with a memory controller, and handed over to this process: ", err)
	}
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Memory: 64 << 20, Cgroups: cgroups, Grace: time.Second})
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	take := launch.Task{Name: "take", Text: true, Command: []string{"/bin/sh", "-c", `head -c 134217728 /dev/zero | tail`}}
	_, err = run(t, s, slot.Call{Task: take, Items: values(nil)})
	f := fault(t, err)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.EqualValues(t, 64<<20, f.Budget)
	require.InDelta(t, 64<<20, f.Peak, 4<<20)
	little := launch.Task{Name: "little", Text: true, Command: []string{"echo", "fine"}}
	got, err := run(t, s, slot.Call{Task: little, Items: values(nil)})
	require.NoError(t, err)
	require.JSONEq(t, `"fine"`, string(got[0].Value))
}
