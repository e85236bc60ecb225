package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestPool(t *testing.T) {
	require.NoError(t, names.Pool("h200-16g"))
	require.Equal(t, "gpumux.h200-16g", names.PoolQueue("h200-16g"))
	for _, bad := range []string{"", "Gpu", "-gpu", "gpu@host/GPU-5c", strings.Repeat("a", 64)} {
		require.Error(t, names.Pool(bad), bad)
	}
}

func TestCheckID(t *testing.T) {
	for _, good := range []string{"a", "run 7 (of 8)", strings.Repeat("x", 1000), "wf/1_2"} {
		require.NoError(t, names.ID(good), good)
	}
	for id, says := range map[string]string{"": "empty", " ": "empty", "über": "'ü'", "a\nb": `'\n'`, "a\x7f": "printable ASCII",
		strings.Repeat("x", 1001): "1001 bytes", "a\xff": "printable ASCII"} {
		require.ErrorContains(t, names.ID(id), says, "%q", id)
	}
}
