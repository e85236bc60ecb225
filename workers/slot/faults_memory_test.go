package slot_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// TestSlot_FaultsOfHostMemory lets the kernel's own out-of-memory killer end a task process, in a cgroup that nobody told the
// slot about: a kill from outside, whose fault says where to look.
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

// limitedCgroup makes a cgroup with a limit on memory, where the machine lets the test do that.
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
		if os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o644) == nil {
			return dir
		}
	}
	t.Skip("needs to make a cgroup with a limit on memory")
	return ""
}
