//go:build cgo

package gpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
)

// What the driver does not tell is left out.
func TestStatus_ECCWithoutCounts(t *testing.T) {
	s := dgx()
	symbols(s, with("nvmlDeviceGetEccMode", "nvmlDeviceGetRemappedRows")...)
	d := device(s, 0)
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED, nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.ERROR_NOT_SUPPORTED }
	inv := open(t, s)
	st, err := inv.Status(d.UUID)
	require.NoError(t, err)
	require.Equal(t, &ECC{Enabled: true}, st.ECC, "the library has no counts")
	require.Nil(t, st.RemappedRows)

	symbols(s, with("nvmlDeviceGetEccMode", "nvmlDeviceGetTotalEccErrors")...)
	d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
		if kind != nvml.MEMORY_ERROR_TYPE_UNCORRECTED || counter != nvml.AGGREGATE_ECC {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return 7, nvml.SUCCESS
	}
	st, err = inv.Status(d.UUID)
	require.NoError(t, err)
	require.Nil(t, st.ECC.Volatile)
	require.EqualValues(t, 7, *st.ECC.Aggregate)
}
