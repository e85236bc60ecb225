package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

// A driver that does not tell the memory has not none.
func TestDoctor_SaysThatMemoryIsUnknown(t *testing.T) {
	require.Equal(t, "its memory is unknown", freeText(gpu.Memory{}))
	require.Equal(t, "0B free of 16GiB", freeText(gpu.Memory{Total: 16 << 30}))
}
