package memory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// Two workers, or maps, of one host find out that their budgets do not fit together.
func TestPromise_BudgetsOfTwoWorkers(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 24 << 30, Free: 24 << 30}, {Total: 24 << 30, Free: 24 << 30}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	folder := filepath.Join(t.TempDir(), "promises")
	on := func(device string) config.Pool {
		return config.Pool{Name: "gpu", Devices: gpu.Selection{device}, Slots: 4, Memory: 4 << 30}
	}
	files := func() int {
		list, err := os.ReadDir(folder)
		require.NoError(t, err)
		return len(list)
	}
	first, seen := enforcer(t, inventory, on("0"))
	releaseFirst := first.Promise(folder)
	other, seenThere := enforcer(t, inventory, on("1"))
	releaseOther := other.Promise(folder)
	require.Empty(t, seen.All())
	require.Empty(t, seenThere.All(), "on another device")
	require.Equal(t, 2, files())

	second, seen := enforcer(t, inventory, on("0"))
	releaseSecond := second.Promise(folder)
	said := seen.All()
	require.Len(t, said, 1)
	require.Equal(t, zap.WarnLevel, said[0].Level)
	require.Regexp(t, `^the budgets on it are 16GiB in all, and those of other gpumux processes of this user \(process \d+\) 16GiB: together more than its 24GiB$`,
		said[0].Message)
	require.Equal(t, inventory.Devices()[0].UUID, said[0].ContextMap()["device"])

	releaseFirst()
	releaseSecond()
	releaseOther()
	require.Zero(t, files())

	// What a killed process left counts for nothing.
	left := filepath.Join(folder, inventory.Devices()[0].UUID+".1.new1")
	require.NoError(t, os.WriteFile(left, []byte("17179869184"), 0o600))
	third, seen := enforcer(t, inventory, on("0"))
	defer third.Promise(folder)()
	require.Empty(t, seen.All())
	require.NoFileExists(t, left)

	unusable, seen := enforcer(t, inventory, on("0"))
	unusable.Promise(filepath.Join(folder, "not", "there"))()
	require.Empty(t, seen.All())
}
