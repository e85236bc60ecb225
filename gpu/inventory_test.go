package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatic_Status(t *testing.T) {
	inv, err := Open(t.Context(), Options{Static: []Device{
		{Kind: KindGPU, UUID: "G", Memory: 7},
		{Kind: KindCPU, UUID: "CPU-small", Memory: 1 << 20},
	}})
	require.NoError(t, err)
	require.Len(t, inv.Devices(), 2, "a CPU in the list takes the place of the host's")
	st, err := inv.Status("G")
	require.NoError(t, err)
	require.Equal(t, Memory{Total: 7, Free: 7}, st.Memory)
	st, err = inv.Status("CPU-small")
	require.NoError(t, err)
	require.Equal(t, uint64(1<<20), st.Memory.Total)
	held, err := inv.ProcessMemory("G")
	require.NoError(t, err)
	require.Empty(t, held)
	require.NoError(t, inv.Close())
}

func TestCPU_Status(t *testing.T) {
	inv, err := Open(t.Context(), Options{NoNVML: true})
	require.NoError(t, err)
	found, err := inv.Select(Selection{"cpu"})
	require.NoError(t, err)
	d := found[0]
	require.Equal(t, -1, d.Index)
	require.NotEmpty(t, d.Name)
	require.Greater(t, d.Memory, uint64(64<<20))
	st, err := inv.Status(CPU)
	require.NoError(t, err)
	require.Equal(t, d.Memory, st.Memory.Total)
	require.Equal(t, st.Memory.Total, st.Memory.Free+st.Memory.Used)
	require.Greater(t, st.Memory.Free, uint64(0))
}
