package gpu

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelect_ByConditions(t *testing.T) {
	const gib = 1 << 30
	inv, err := Open(t.Context(), Options{Static: []Device{
		{Index: 0, Kind: KindGPU, UUID: "GPU-a", Name: "NVIDIA H100 80GB HBM3", Memory: 80 * gib},
		{Index: 1, Kind: KindGPU, UUID: "GPU-b", Name: "NVIDIA GeForce RTX 4090", Memory: 24 * gib},
		{Index: 2, Kind: KindGPU, UUID: "GPU-c", Name: "NVIDIA A100-SXM4-40GB", Memory: 40 * gib},
		{Index: -1, Kind: KindCPU, UUID: CPU, Name: "host", Memory: 512 * gib},
	}})
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{"model": "H100"}`:                              "GPU-a",
		`{"model": "rtx 4090"}`:                          "GPU-b",
		`{"memory": ">=40GiB"}`:                          "GPU-a GPU-c",
		`{"memory": "<= 40GiB", "model": "nvidia"}`:      "GPU-b GPU-c",
		`[{"model": "A100"}, "1", {"memory": ">=1TiB"}]`: "!none is memory>=1tib",
		`"model=h100"`:                                   "GPU-a",
		`{"model": "V100"}`:                              `!unknown device: none is model=v100; this host has 0 (GPU-a`,
	} {
		var s Selection
		require.NoError(t, json.Unmarshal([]byte(text), &s), text)
		found, err := inv.Select(s)
		if want[0] == '!' {
			require.ErrorContains(t, err, want[1:], text)
			continue
		}
		require.NoError(t, err, text)
		got := ""
		for _, d := range found {
			got += " " + d.UUID
		}
		require.Equal(t, want, got[1:], text)
	}
	for text, want := range map[string]string{
		`{"memory": "40GiB"}`: `"memory40gib" is no condition; write it as model=H100, memory>=40GiB or both`,
		`{"memory": ">=x"}`:   "is not a size",
		`{"speed": 3}`:        "is no condition",
		`{"model": ""}`:       "is no condition",
		`[[0, 1], {}, "no"]`:  "neither a number nor a name",
	} {
		var s Selection
		require.ErrorContains(t, json.Unmarshal([]byte(text), &s), want, text)
	}
}
