package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shares is a report of heavy from what its ways do of the unshared device.
func shares(rows ...Row) *Report {
	r := &Report{}
	for _, row := range rows {
		row.Workload = "heavy"
		if row.Sharing == "" && row.Way != Bare {
			row.Sharing = timeSliced
		}
		row.Latency = about(float64(row.Clients), 0.01)
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestAdvise_Clients(t *testing.T) {
	one := func(share, within float64) Row {
		return Row{Way: Sequential, Clients: 1, OfUnshared: about(share, within)}
	}
	many := func(clients int, share, within float64) Row {
		return Row{Way: Persistent, Clients: clients, OfUnshared: about(share, within)}
	}
	served := Row{Way: Persistent, Clients: 3, Sharing: mps, OfUnshared: about(2.4, 0.02)}
	for name, c := range map[string]struct {
		r    *Report
		want string
	}{
		"Saturated": {shares(one(0.93, 0.01), many(4, 0.95, 0.02)),
			"1 slot, for throughput and latency; it does 93% (92.1%-93.9%) of the unshared device, and more slots no more"},
		"SaturatedButForOurCosts": {shares(one(0.8, 0.01), many(4, 0.95, 0.02)),
			"for throughput 4 slots of default, which do 95% (93.1%-96.9%) of the unshared device where 1 slot does " +
				"80% (79.2%-80.8%); for latency 1 slot: an item takes 100% of its time alone, and 400% with 4"},
		"Shared": {shares(one(0.95, 0.02), many(4, 2.5, 0.02)),
			"for throughput 4 slots of default, which do 250% (245%-255%) of the unshared device where 1 slot does 95% (93.1%-96.9%); " +
				"for latency 1 slot: an item takes 100% of its time alone, and 400% with 4"},
		"FewestThatDoAsMuch": {shares(one(0.95, 0.02), many(3, 2.45, 0.03), many(5, 2.5, 0.03)), "for throughput 3 slots of default, which do 245%"},
		"MPS":                {shares(one(0.95, 0.02), many(3, 1.5, 0.02), served), "for throughput 3 slots of mps, which do 240%"},
		"Noise":              {shares(one(0.93, 0.2), many(4, 1.3, 0.3)), "1 slot until more is known; the noise hides whether more slots do more"},
		"NoiseEitherWay":     {shares(one(0.93, 0.2), many(4, 0.9, 0.3)), "1 slot until more is known"},
		"TooFewRounds":       {shares(one(0.93, 0.01), Row{Way: Persistent, Clients: 4, OfUnshared: quartiles([]float64{2, 2, 2})}), "1 slot until more is known"},
		"CPU": {shares(one(0.9, 0.02), many(4, 1, 0.02), Row{Way: OnCPU, Clients: 4, OfUnshared: about(2, 0.1)}),
			"the CPU; it does 200% (180%-220%) of the unshared GPU, and the GPU's slots 100% (98%-102%)"},
		"CPUWithinTheNoise": {shares(one(0.9, 0.02), many(4, 1.5, 0.1), Row{Way: OnCPU, Clients: 4, OfUnshared: about(1.7, 0.1)}), "for throughput 4 slots"},
		"OneClientOnly":     {shares(one(0.9, 0.02)), "1 slot does 90% (88.2%-91.8%) of the unshared device; measure more clients"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.advise()
			require.Len(t, c.r.Advice, 1)
			require.True(t, strings.HasPrefix(c.r.Advice[0], "heavy: "+c.want), c.r.Advice[0])
		})
	}
}

func TestAdvise_Costs(t *testing.T) {
	text := strings.Join(sampleReport().Advice, "\n")
	require.Contains(t, text, "gpumux takes 49.8µs per item; items shorter than 996µs lose more than 5% to it")
}
