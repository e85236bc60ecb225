package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/contract"
)

func TestDoctor_SaysWhatEnforcesABudget(t *testing.T) {
	f := checkBudget(contract.PoolInfo{Name: "cpu", Memory: 8 << 30, Means: []string{"MIG", "watch every 100ms"}})
	require.Equal(t, finding{Check: "pool cpu", Status: checkGood,
		Detail: "budget 8GiB enforced by: MIG, watch every 100ms"}, f)
	f = checkBudget(contract.PoolInfo{Name: "old", Memory: 8 << 30})
	require.Equal(t, checkNote, f.Status)
	require.NotEmpty(t, f.Fix)
	require.Equal(t, "no memory budget", checkBudget(contract.PoolInfo{Name: "x"}).Detail)
}

// A driver that does not tell the memory has not none.
func TestDoctor_SaysThatMemoryIsUnknown(t *testing.T) {
	require.Equal(t, "its memory is unknown", freeText(gpu.Memory{}))
	require.Equal(t, "0B free of 16GiB", freeText(gpu.Memory{Total: 16 << 30}))
}
