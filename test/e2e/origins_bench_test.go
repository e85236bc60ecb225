package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measuredRow is what the examples read of a row of `gpumux bench --json`.
type measuredRow struct {
	Workload, Way, Sharing                        string
	Clients, Items                                int
	ItemsPerSecond, OfUnshared, LatencyOfUnshared measuredQuartiles
	ItemSeconds                                   struct{ Median float64 }
}

type measuredQuartiles struct {
	Q1, Median, Q3 float64
	Count          int
}

// table runs an example that makes a table of what gpumux measures, and returns it with
// the JSON that it is made of.
func (e *example) table(line, report string) (out string, rows []measuredRow) {
	e.t.Helper()
	out, code := e.sh(e.dir, line)
	require.Zero(e.t, code, out)
	var found struct {
		Rows       []measuredRow
		Unmeasured []struct{ Sharing, Reason string }
		Advice     []string
	}
	require.NoError(e.t, json.Unmarshal([]byte(e.file(report)), &found))
	require.NotEmpty(e.t, found.Rows)
	require.NotEmpty(e.t, found.Advice)
	for _, advice := range found.Advice {
		require.Contains(e.t, out, "\n- "+advice+"\n")
	}
	return squeezed(out), found.Rows
}

func squeezed(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

// offline is an example that needs no server.
func offline(t *testing.T, name string) *example {
	t.Helper()
	e := &example{shell: newShell(t), name: name, repo: top(t)}
	e.copy("examples/" + name)
	e.link()
	return e
}

// The table has, for each way, what four tasks take by the report of bench.
func TestLong_OriginsVignette(t *testing.T) {
	e := offline(t, "vignette")
	out, rows := e.table(".venv/bin/python examples/vignette/vignette.py --limit 1s --workloads medium --clients 2 "+
		"--framework numpy", "vignette.json")
	names := map[string]string{"persistent1": "Sequential", "persistent2": "Persistent", "fresh2": "Proxy"}
	lines := 0
	for _, row := range rows {
		if row.Sharing != "default" {
			continue
		}
		lines++
		want := fmt.Sprintf("\n%s %s %d ", row.Workload, names[fmt.Sprint(row.Way, row.Clients)], row.Clients)
		rates := row.ItemsPerSecond
		for _, rate := range []float64{rates.Q3, rates.Median, rates.Q1} {
			cell := "-"
			if rate > 0 {
				cell = fmt.Sprintf("%.3g", 4/rate)
			}
			want += cell + " "
		}
		require.Contains(t, out, want+fmt.Sprintf("%d %.3g\n", rates.Count, row.ItemSeconds.Median))
	}
	require.Equal(t, 3, lines)
	require.Contains(t, e.file("vignette.html"), "<svg")
}

// The products of all ways are NumPy's.
func TestLong_OriginsVignetteProducts(t *testing.T) {
	e := offline(t, "vignette")
	line := ".venv/bin/python examples/vignette/products.py"
	out, code := e.sh(e.dir, line)
	require.Zero(t, code, out)
	require.Len(t, regexp.MustCompile(`(?m)^(heavy|medium) .*\de-0[5-9] of the largest; allowed: 1e-05$`).FindAllString(out, -1), 8, out)

	// It tells when the numbers differ, by ten times what is allowed.
	e.change("examples/vignette/products.py", "right = np.array", "right = 1.0001 * np.array")
	out, code = e.sh(e.dir, line)
	require.Equal(t, 1, code)
	require.Contains(t, out, "WRONG\n")
}

// What the vignette expects is checked only where the quartiles lie apart.
func TestOrigins_VignetteExpects(t *testing.T) {
	e := offline(t, "vignette")
	row := func(workload, way string, clients int, middle, within float64, rounds int) string {
		quartiles := fmt.Sprintf(`{"median":%g,"q1":%g,"q3":%g,"count":%d}`, middle, middle-within, middle+within, rounds)
		return fmt.Sprintf(`{"workload":%q,"way":%q,"sharing":"default","clients":%d,"items":9,"itemSeconds":{"median":1},`+
			`"itemsPerSecond":%s,"ofUnshared":%[4]s}`, workload, way, clients, quartiles)
	}
	e.write("known.json", fmt.Sprintf(`{"machine":{"gpu":true},"rows":[%s]}`, strings.Join([]string{
		row("heavy", "persistent", 1, 2, 0.1, 9), row("heavy", "persistent", 4, 1, 0.1, 9), row("heavy", "fresh", 4, 0.8, 0.1, 5),
		row("medium", "persistent", 1, 2, 0.1, 9), row("medium", "persistent", 4, 1.9, 0.1, 9),
	}, ",")))
	out, code := e.sh(e.dir, ".venv/bin/python examples/vignette/vignette.py --report known.json")
	require.Zero(t, code)
	require.Contains(t, squeezed(out), "\nheavy Sequential 1 1.9 2 2.11 9 1\n")
	require.Contains(t, out, `
heavy: Sequential does more than Persistent: yes, 2 times
heavy: Persistent does more than Proxy: not known, with fewer than six rounds
medium: Persistent does more than Sequential: not known, the quartiles overlap
`)
}

// Throughput and latency are the shares that bench has found, and what it could not
// measure is named.
func TestLong_OriginsSharing(t *testing.T) {
	e := offline(t, "sharing")
	out, rows := e.table(".venv/bin/python examples/sharing/sharing.py --limit 1s --pool cpu --workloads detector --clients 1,3 "+
		"--framework numpy", "sharing.json")
	share := func(q measuredQuartiles) string {
		if q.Count == 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.0f%% %.0f%%-%.0f%%", q.Median*100, q.Q1*100, q.Q3*100)
	}
	lines := 0
	for _, row := range rows {
		if row.Way != "persistent" {
			continue
		}
		lines++
		require.Contains(t, out, fmt.Sprintf("\ndetector default %d %s %s %.1fms\n",
			row.Clients, share(row.OfUnshared), share(row.LatencyOfUnshared), row.ItemSeconds.Median*1000))
	}
	require.Equal(t, 2, lines)
	require.Contains(t, out, "\nnot measured: mps: it needs a GPU\nnot measured: mig: it needs a GPU\n")
}

// The detector's scores are NumPy's, and the worker's histogram has the latency that the
// results tell.
func TestLong_OriginsSharingLatency(t *testing.T) {
	e := newExample(t, "sharing")
	e.copy("internal/cli/bench")
	address := "127.0.0.1:" + freePort(t)
	e.write("examples/sharing/gpumux.yaml", strings.Replace(e.file("examples/sharing/gpumux.yaml"), "127.0.0.1:9464", address, 1))
	e.work("examples/sharing/gpumux.yaml")
	line := ".venv/bin/python examples/sharing/latency.py " + address
	out, code := e.sh(e.dir, line)
	require.Zero(t, code, out)
	require.NotContains(t, out, "WRONG")
	require.Contains(t, out, "scores of 60 images: ")
	require.Contains(t, out, "gpumux_item_seconds: 60 items, ")
	require.Regexp(t, `(?m)^p90 +\d+\.\dms {2}between \S+ms and \S+ms; the results: \d+\.\dms$`, out)

	// It tells when the numbers differ, by ten times what is allowed.
	program := e.file("examples/sharing/latency.py")
	e.write("examples/sharing/latency.py", strings.Replace(program, "right = np.", "right = 1.0001 * np.", 1))
	out, code = e.sh(e.dir, line)
	require.Equal(t, 1, code)
	require.Contains(t, out, "of the largest beside NumPy's in 64 bits; allowed: 1e-05  WRONG\n")
}
