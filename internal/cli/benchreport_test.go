package cli

import (
	"bytes"
	"html/template"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// around is quartiles that lie so far from the median, as a share of it.
func around(middle, within float64) quartiles {
	return quartiles{Q1: middle * (1 - within), Median: middle, Q3: middle * (1 + within), Count: 9}
}

// sampleReport is a whole run with figures that are easy to check.
func sampleReport() *benchReport {
	row := func(workload string, size int, way way, sharing string, clients int, rate, share, ofBare, item, within float64) benchRow {
		r := benchRow{Workload: workload, Size: size, Way: way, Sharing: sharing, Clients: clients, Items: 900, Rate: around(rate, within),
			OfUnshared: around(share, within), Latency: around(float64(clients)/share, within),
			Item: around(item, 0.1)}
		if way != wayBare {
			r.OfBare = around(ofBare, within)
		}
		return r
	}
	r := &benchReport{
		Version: "1.2.3", Took: 94 * time.Second,
		Machine: machine{OS: "linux/amd64", CPUs: 2, Device: "EPYC", Python: "3.11.7", Framework: "numpy 2.4.6"},
		Notes:   []string{"only the first of 2 GPUs is measured"},
		Rows: []benchRow{
			row("heavy", 1024, wayBare, "", 1, 10, 1, 0, 0.1, 0),
			row("heavy", 1024, wayPersistent, "default", 1, 9.3, 0.93, 0.93, 0.1075, 0.01),
			row("heavy", 1024, wayBare, "", 2, 10.5, 1.05, 0, 0.19, 0.02),
			row("heavy", 1024, wayPersistent, "default", 2, 9.5, 0.95, 0.91, 0.21, 0.02),
			row("heavy", 1024, wayFresh, "default", 2, 4, 0.4, 0.4, 0.5, 0.05),
			row("light", 0, wayBare, "", 1, 5e6, 1, 0, 2e-7, 0),
			row("light", 0, wayPersistent, "default", 1, 20000, 0.004, 0.004, 5e-5, 0.08),
			row("light", 0, wayBare, "", 2, 1e7, 2, 0, 2e-7, 0.02),
			row("light", 0, wayPersistent, "default", 2, 39000, 0.0078, 0.0039, 5.02e-5, 0.08),
			{Workload: "light", Way: wayFresh, Sharing: "default", Clients: 2, Items: 15, Item: around(0.18, 0.02)},
		},
		Unmeasured: []unmeasured{{"mps", "it needs a GPU"}},
	}
	r.advise("heavy")
	r.advise("light")
	return r
}

func TestReport_Print(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sampleReport().print(&b))
	golden(t, "bench", b.String())
}

// A page that is mailed or kept must show everything without a network.
func TestReport_HTMLStandsAlone(t *testing.T) {
	var b bytes.Buffer
	r := sampleReport()
	r.Machine.Device = `<script src="https://example.org/x.js">`
	require.NoError(t, r.html(&b))
	text := b.String()
	lacks, has := func(part string) { t.Helper(); require.False(t, strings.Contains(text, part), part) }, func(part string) {
		t.Helper()
		require.True(t, strings.Contains(text, part), part)
	}
	for _, part := range []string{"<script", "<link", "@import", "url(", "NaN"} {
		lacks(part)
	}
	require.Empty(t, regexp.MustCompile(`(?i)\b(src|href)\s*=\s*["']?(https?:)?//`).FindAllString(text, -1))
	require.Empty(t, regexp.MustCompile(`\d{15}`).FindString(text), "a coordinate that ran away")
	require.Equal(t, 9, strings.Count(text, "<svg"), "a bar for each row that was measured")
	require.Equal(t, 9, strings.Count(text, "</svg>"))
	has(">10M</span>") // the figure of a row
	for _, line := range append(r.Advice, r.Notes...) {
		has(template.HTMLEscapeString(line))
	}
}

func TestReport_Advice(t *testing.T) {
	one := func(share, within float64) benchRow {
		return benchRow{Way: wayPersistent, Sharing: "default", Clients: 1, OfUnshared: around(share, within)}
	}
	many := func(clients int, share, within float64) benchRow {
		return benchRow{Way: wayPersistent, Sharing: "default", Clients: clients, OfUnshared: around(share, within)}
	}
	served := benchRow{Way: wayPersistent, Clients: 3, Sharing: "mps", OfUnshared: around(2.4, 0.02)}
	few := benchRow{Way: wayPersistent, Sharing: "default", Clients: 4, OfUnshared: quartilesOf([]float64{2, 2, 2})}
	for name, c := range map[string]struct {
		rows []benchRow
		want string
	}{
		"Saturated": {[]benchRow{one(0.93, 0.01), many(4, 0.95, 0.02)}, "1 slot; it does 93% (92.1%-93.9%) of the unshared device, and more slots no more"},
		"Shared": {[]benchRow{one(0.95, 0.02), many(4, 2.5, 0.02)}, "for throughput 4 slots of default, which do 250% (245%-255%) of the " +
			"unshared device where 1 slot does 95% (93.1%-96.9%); for latency 1 slot: an item takes 100% of its time alone, and 400% with 4"},
		"MPS":          {[]benchRow{one(0.95, 0.02), many(3, 1.5, 0.02), served}, "for throughput 3 slots of mps, which do 240%"},
		"TooFewRounds": {[]benchRow{one(0.93, 0.01), few}, "1 slot; it does"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &benchReport{}
			for _, row := range c.rows {
				row.Workload, row.Latency = "heavy", around(float64(row.Clients), 0.01)
				r.Rows = append(r.Rows, row)
			}
			r.advise("heavy")
			require.Len(t, r.Advice, 1)
			require.True(t, strings.HasPrefix(r.Advice[0], "heavy: "+c.want), r.Advice[0])
		})
	}
	require.Contains(t, sampleReport().Advice[2], "gpumux takes 49.8µs per item; items shorter than 996µs lose more than 5% to it")
}
