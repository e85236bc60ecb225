package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestQueues_AreOnePerPoolAndDevice(t *testing.T) {
	pool, err := names.RungQueue("h200-16g")
	require.NoError(t, err)
	require.Equal(t, "gpumux.h200-16g", pool)
	device, err := names.RungQueue("gpu@node1/GPU-5c")
	require.NoError(t, err)
	require.Equal(t, names.DeviceQueue("gpu", "node1", "GPU-5c"), device)
	for _, bad := range []string{"", "Gpu", "-gpu", "gpu@", "gpu@host/", strings.Repeat("a", 64)} {
		_, err := names.RungQueue(bad)
		require.Error(t, err, bad)
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
