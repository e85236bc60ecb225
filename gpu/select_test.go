package gpu

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func fleet(t *testing.T) *Inventory {
	t.Helper()
	inv, err := Open(t.Context(), Options{Static: []Device{
		{Index: 0, Kind: KindGPU, UUID: "GPU-ab01", Name: "A", Memory: 1 << 30},
		{Index: 1, Kind: KindGPU, UUID: "GPU-ab02", Name: "B", Memory: 2 << 30},
		{Index: 2, Kind: KindGPU, UUID: "GPU-cd03", Name: "C", MIG: true},
		{Index: 2, Instance: 0, Kind: KindMIG, UUID: "MIG-11", Name: "C 1g", Parent: "GPU-cd03"},
		{Index: 2, Instance: 4, Kind: KindMIG, UUID: "MIG-22", Name: "C 2g", Parent: "GPU-cd03"},
		{Index: 10, Kind: KindGPU, UUID: "GPU-ef04", Name: "D"},
	}})
	require.NoError(t, err)
	return inv
}

func TestSelect_FromJSON(t *testing.T) {
	for in, want := range map[string][]string{
		`"all"`:                  {"GPU-ab01", "GPU-ab02", "MIG-11", "MIG-22", "GPU-ef04"},
		`"cpu"`:                  {CPU},
		`"CPU"`:                  {CPU},
		`"1"`:                    {"GPU-ab02"},
		`["1", "0", "1"]`:        {"GPU-ab02", "GPU-ab01"},
		`["GPU-ab01", "0", "1"]`: {"GPU-ab01", "GPU-ab02"},
		`["gpu-AB02"]`:           {"GPU-ab02"},
		`["2"]`:                  {"MIG-11", "MIG-22"},
		`"GPU-c"`:                {"MIG-11", "MIG-22"},
		`"2:4"`:                  {"MIG-22"},
		`["MIG-2", "cpu"]`:       {"MIG-22", CPU},
		`["all", "cpu"]`:         {"GPU-ab01", "GPU-ab02", "MIG-11", "MIG-22", "GPU-ef04", CPU},
	} {
		var s Selection
		require.NoError(t, json.Unmarshal([]byte(in), &s), in)
		got, err := fleet(t).Select(s)
		require.NoError(t, err, in)
		require.Equal(t, want, uuids(got), in)
	}
}

func uuids(list []Device) (out []string) {
	for _, d := range list {
		out = append(out, d.UUID)
	}
	return out
}

func TestSelect_Refuses(t *testing.T) {
	inv := fleet(t)
	for in, says := range map[string]string{
		"":      "empty name",
		"3":     `unknown device "3": this host has 0 (GPU-ab01, A), 1 (GPU-ab02, B), 2 (GPU-cd03, C), 2:0 (MIG-11, C 1g), 2:4 (MIG-22, C 2g), 10 (GPU-ef04, D), cpu (`,
		"-1":    "unknown device",
		"2:1":   "unknown device",
		"GPU-z": "unknown device",
		"GPU-a": `"GPU-a" fits 2 devices`,
	} {
		_, err := inv.Select(Selection{in})
		require.ErrorContains(t, err, says, in)
		require.ErrorContains(t, err, "devices: ")
	}
	_, err := inv.Select(nil)
	require.ErrorContains(t, err, "nothing selected")

	var s Selection
	for _, in := range []string{"1.5", "[true]", "[[0]]"} {
		require.ErrorContains(t, json.Unmarshal([]byte(in), &s), "neither a number nor a name", in)
	}
}

func TestSelect_AllWithoutGPU(t *testing.T) {
	inv, err := Open(t.Context(), Options{NoNVML: true})
	require.NoError(t, err)
	_, err = inv.Select(Selection{"all"})
	require.ErrorContains(t, err, "NVML is switched off")
	require.ErrorContains(t, err, "write devices: cpu")

	inv, err = Open(t.Context(), Options{Static: []Device{{Kind: KindGPU, UUID: "GPU-1", MIG: true}}})
	require.NoError(t, err)
	_, err = inv.Select(Selection{"all"})
	require.ErrorContains(t, err, "has no instances")
}
