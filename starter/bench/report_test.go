package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "write it with: go test ./starter/bench -update")
	require.Equal(t, string(want), got)
}

// sampleReport is a whole run with figures that are easy to check.
func sampleReport() *Report {
	row := func(workload string, size int, way Way, slots, items int, start, median, total float64) Row {
		r := Row{Workload: workload, Size: size, Way: way, Slots: slots, Items: items, Start: start}
		middle := time.Duration(median * float64(time.Second))
		r.fill([]time.Duration{middle / 2, middle, middle, middle * 2}, time.Duration(total*float64(time.Second)))
		r.Mean = median
		return r
	}
	r := &Report{
		Version: "1.2.3", Slots: 2, Took: 94 * time.Second,
		Machine: Machine{OS: "linux/amd64", CPUs: 2, Device: "EPYC", Python: "3.11.7", Framework: "numpy 2.4.6"},
		Notes:   []string{"heavy multiplies 1024×1024 instead of 2048×2048, so that the whole does not take too long"},
		Rows: []Row{
			row("heavy", 1024, Bare, 2, 20, 0.2, 0.2, 2),
			row("heavy", 1024, Bare, 1, 10, 0.2, 0.18, 2),
			row("heavy", 1024, Persistent, 2, 18, 0.3, 0.21, 2),
			row("heavy", 1024, Fresh, 2, 8, 0.4, 0.38, 2),
			row("heavy", 1024, Sequential, 1, 97, 0.2, 0.19, 20),
			row("light", 0, Bare, 2, 400000, 0.03, 2e-7, 0.04),
			row("light", 0, Persistent, 2, 100000, 0.1, 5.02e-5, 3.01),
			row("light", 0, Sequential, 1, 100000, 0.1, 5e-5, 5.5),
			row("light", 0, Fresh, 2, 20, 0.1, 0.1800502, 1.8),
			row("oom", 0, Bare, 2, 16, 0.2, 0.01, 0.5),
			row("oom", 0, Persistent, 2, 15, 0.2, 0.1, 3),
			row("oom", 0, Fresh, 2, 15, 0.2, 0.1, 3),
		},
		Sweep: []Step{{1, 18.2}, {2, 35.3}, {4, 35.6}},
	}
	r.row("oom", Persistent, 0).Faults = map[gpumux.Kind]int64{gpumux.Budget: 3}
	r.compareWithBare()
	r.advise()
	return r
}

func sampleComparison() *Report {
	return &Report{Slots: 2, Quick: true, Took: 40 * time.Second, Machine: Machine{OS: "linux/amd64", CPUs: 1, Device: "EPYC", Python: "3.11.7"},
		Comparison: &Comparison{Items: 100000, Slots: 2, Activities: 3000, Rounds: []ComparisonRound{
			{Gpumux: 40000, PoolOne: 50000, PoolDefault: 1e6, Activity: 800, Dask: 2000},
			{Gpumux: 30000, PoolOne: 60000, PoolDefault: 2e6, Activity: 500, Dask: 1000},
			{Gpumux: 45000, PoolOne: 45000, PoolDefault: 1e6, Activity: 900, Dask: 1500},
		}}}
}

func TestReport_Print(t *testing.T) {
	for name, r := range map[string]*Report{"report": sampleReport(), "comparison": sampleComparison()} {
		var b bytes.Buffer
		require.NoError(t, r.Print(&b))
		golden(t, name, b.String())
	}
}

func TestReport_JSONHasEveryRow(t *testing.T) {
	text, err := json.Marshal(sampleReport())
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.Rows, 12)
	require.Equal(t, Persistent, back.Rows[2].Way)
	require.Equal(t, 9.0, back.Rows[2].Rate)
	require.EqualValues(t, 3, back.row("oom", Persistent, 0).Faults[gpumux.Budget])
	require.Contains(t, string(text), `"medianSeconds":0.21`)
}

// A page that is mailed or kept must show everything without a network.
func TestReport_HTMLStandsAlone(t *testing.T) {
	var b bytes.Buffer
	r := sampleReport()
	r.Machine.Device = `<script src="https://example.org/x.js">`
	require.NoError(t, r.HTML(&b))
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
	require.Equal(t, 7, strings.Count(text, "<svg"), "two charts for each workload, and one over slots")
	require.Equal(t, 7, strings.Count(text, "</svg>"))
	has(">10,000,000</text>") // the label of a bar
	for _, line := range append(r.Advice, r.Notes...) {
		has(line)
	}

	b.Reset()
	require.NoError(t, sampleComparison().HTML(&b))
	text = b.String()
	lacks("<svg")
	has("multiprocessing.Pool(2)")
}
