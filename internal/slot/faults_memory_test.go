package slot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// TestSlot_FaultsOfHostMemory lets the kernel's out-of-memory killer end a task process
// in a cgroup that the slot does not know. The fault of such a kill says where to look.
func TestSlot_FaultsOfHostMemory(t *testing.T) {
	t.Parallel()
	cgroup := limitedCgroup(t, 64<<20)
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		t.Run(string(mode), func(t *testing.T) {
			s := newStand(t, mode)
			got, err := s.run(s.task("item", "CGROUP", cgroup), slot.Call{Work: work(
				object{"i": 0}, object{"i": 1, "end": "host_memory"}, object{"i": 2},
			)})
			f := s.dead(err, ending{how: "host_memory", exit: "signal SIGKILL"}, gpumux.FaultCrash, "run")
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
		// If this is not the kernel's folder, the file is missing, and the test must not make
		// it.
		limits, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = limits.Write(fmt.Append(nil, limit))
		if errors.Join(err, limits.Close()) == nil {
			return dir
		}
	}
	rig.Because(t, rig.Cgroups, "none with a limit on memory can be made")
	return ""
}
