package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuotas_Load(t *testing.T) {
	const text = "pools: [{name: cpu, devices: cpu, quotas: {team-a: {slots: 2, rate: 10/s}, b: {rate: 0.5/s}, \"*\": {slots: 4}}}]\ntasks: {t: {command: [true]}}"
	c, err := load(t, site(t), text)
	require.NoError(t, err)
	require.NoError(t, c.Validate(twoGPUs(t)))
	require.Equal(t, map[string]Quota{"team-a": {Slots: 2, Rate: 10}, "b": {Rate: 0.5}, OtherKeys: {Slots: 4}}, c.Pools[0].Quotas)
}

func TestQuotas_Mistakes(t *testing.T) {
	for rate, ok := range map[string]bool{"1/s": true, "0.1/s": true, "10/m": false, "10": false, "0/s": false, "-1/s": false, "NaN/s": false, "10/d": false, "1e9/s": false, "/s": false} {
		require.Equal(t, ok, new(Rate).UnmarshalText([]byte(rate)) == nil, rate)
	}
	c, err := load(t, site(t), "pools: [{name: cpu, devices: cpu, quotas: {a: {slots: -1}, b: {}}}]\ntasks: {t: {command: [true]}}")
	require.NoError(t, err)
	err = c.Validate(twoGPUs(t))
	require.ErrorContains(t, err, "pools[0].quotas.a: bounds nothing")
	require.ErrorContains(t, err, "pools[0].quotas.b: bounds nothing")
}
