package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchReport(t *testing.T) {
	around := func(middle, within float64) quartiles {
		return quartiles{Q1: middle * (1 - within), Median: middle, Q3: middle * (1 + within), Count: 9}
	}
	row := func(workload string, size int, way string, sharing string, clients int, rate, ofBare, item, within float64) benchRow {
		r := benchRow{benchStage: benchStage{workload, way, sharing, clients}, Size: size, Rate: around(rate, within), Item: around(item, 0.1)}
		if way != wayBare {
			r.OfBare = around(ofBare, within)
		}
		return r
	}
	r := &benchReport{
		Version: "1.2.3", Machine: machine{OS: "linux/amd64", CPUs: 2, Device: "EPYC", Python: "3.11.7", Framework: "numpy 2.4.6"},
		Notes: []string{"only the first of 2 devices is measured"},
		Rows: []benchRow{
			row("heavy", 1024, wayBare, "", 2, 10.5, 0, 0.19, 0.02),
			row("heavy", 1024, wayPersistent, "default", 2, 9.5, 0.91, 0.21, 0.02),
			row("heavy", 1024, wayFresh, "default", 2, 4, 0.4, 0.5, 0.05),
			row("light", 0, wayBare, "", 2, 1e7, 0, 2e-7, 0.02),
			row("light", 0, wayPersistent, "default", 2, 39000, 0.0039, 5.02e-5, 0.08),
			{benchStage: benchStage{"light", wayFresh, "default", 2}, Item: around(0.18, 0.02)},
		},
	}
	var b bytes.Buffer
	require.NoError(t, r.print(&b))
	golden(t, "bench", b.String())
}
