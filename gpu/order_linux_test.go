//go:build cgo

package gpu

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

// CUDA counts the fastest GPU first, so an index of the user's may mean another one than
// that of nvidia-smi. CUDA is asked where that makes a difference.
func TestOpen_AnIndexIsCUDAs(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Name: "NVIDIA T400"}, {Name: "NVIDIA H100"}}})
	fast := "GPU-00000000-0000-0000-0000-000000000001"
	asked := 0
	var fails error
	open := func(spec string) *Inventory {
		t.Setenv("CUDA_VISIBLE_DEVICES", spec)
		inv, err := Open(t.Context(), Options{Library: m.Library, CUDAOrder: func(context.Context) ([]string, error) {
			asked++
			return []string{fast}, fails
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, inv.Close()) })
		return inv
	}
	require.Equal(t, fast, open("0").Devices()[0].UUID)
	require.Equal(t, 1, asked)
	fails = errors.New("no Python")
	inv := open("0")
	require.Equal(t, "NVIDIA T400", inv.Devices()[0].Name)
	require.Len(t, inv.Warnings(), 1)
	require.Contains(t, inv.Warnings()[0], `CUDA_VISIBLE_DEVICES="0" is taken for the indices of nvidia-smi, although CUDA may count these GPUs otherwise: no Python; set CUDA_DEVICE_ORDER`)
	require.Equal(t, 2, asked)

	require.Empty(t, open(fast).Warnings(), "a UUID is one")
	require.Empty(t, open("").Warnings())
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	require.Empty(t, open("0").Warnings())
	require.Equal(t, 2, asked)
}
