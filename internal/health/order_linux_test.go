package health

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestOpen_CUDATellsItsOrder(t *testing.T) {
	second := "GPU-5b8e7c21-2c2d-4e3f-8a4b-5c6d7e8f9a03"
	m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{{}, {UUID: second}, {}}})
	t.Setenv("LD_LIBRARY_PATH", m.Folder)
	t.Setenv("CUDA_VISIBLE_DEVICES", "1,0")
	shown, err := visible(t.Context(), os.Getenv("GPUMUX_TEST_PYTHON"))
	require.NoError(t, err)
	require.Equal(t, []string{second, uuid}, shown)

	m.Update(func(s *gputest.State) { s.GPUs[1].Sick.Init = 802 })
	_, err = visible(t.Context(), os.Getenv("GPUMUX_TEST_PYTHON"))
	require.EqualError(t, err, "system not yet initialized")
	_, err = visible(t.Context(), "no-such-python")
	require.ErrorContains(t, err, "no-such-python")
}
