package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestDoctor_SaysWhatEnforcesABudget(t *testing.T) {
	f := servedPool(gpumux.PoolInfo{Name: "cpu", Memory: 8 << 30, Means: []string{"cgroup", "watch every 100ms"}}, "gpumux.cpu")
	require.Equal(t, Finding{Check: "pool cpu", Verdict: Good,
		Detail: "served on queue gpumux.cpu; budget 8GiB enforced by: cgroup, watch every 100ms"}, f)
	f = servedPool(gpumux.PoolInfo{Name: "old", Memory: 8 << 30}, "gpumux.old")
	require.Equal(t, Note, f.Verdict)
	require.NotEmpty(t, f.Fix)
	require.Equal(t, "served on queue gpumux.x", servedPool(gpumux.PoolInfo{Name: "x"}, "gpumux.x").Detail)
}
