package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gpumux/gpumux/test/programtest"
	"github.com/stretchr/testify/require"
)

// origin is an example that compares what gpumux does with what it came from.
type origin struct {
	name string
	// served says that it maps on a worker.
	served bool
	before func(e *example)
	line   string
	// prints are patterns of lines, with one space for several.
	prints []string
	after  func(e *example, out string)
	// wrong changes what is compared, and the example must notice: file, text, other text.
	wrong [][3]string
	again string // the line then; default line
	says  string
}

// slots gives a worker's file a port that is free, and starts the worker.
func slots(port string) func(*example) {
	return func(e *example) {
		file := "examples/" + e.name + "/gpumux.yaml"
		if port != "" {
			e.change(file, ":"+port, ":"+programtest.FreePort(e.t))
		}
		e.work(file)
	}
}

const compare = ".venv/bin/python examples/%s/compare.py"

// rowsTask is a task of batches that needs no framework but NumPy.
const rowsTask = `
import gpumux
import numpy
import os
import time


class Rows:
    texts, allowed, differing = 32, 1e-9, 0

    def __init__(self):
        self.matrix = numpy.random.default_rng(0).random((64, 64))

    @gpumux.batch(max=8)
    def __call__(self, items):
        began = time.time()
        values = [(self.matrix @ numpy.random.default_rng(item % 32).random(64))[:4].tolist() for item in items]
        time.sleep(0.02)
        ended = time.time()
        return [{"value": value, "began": began, "ended": ended, "pid": os.getpid()} for value in values]
`

var origins = []origin{
	// The same sum comes of all four ways, and only a slot with a shard of its own holds no
	// more than that. A slot that has ended its shard before another has begun gets the
	// next.
	{name: "pmap", served: true, line: fmt.Sprintf(compare, "pmap"), prints: []string{
		`serial 1 697953.1 8.00MiB 8.00MiB 4B 8.00MiB 8.00MiB`, `replicated 1 697953.0 8.00MiB 8.00MiB 4B 2.00MiB 32.00MiB`,
		`sharded 1 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 8.00MiB`, `slots [1-4] 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 2.00MiB`,
	}, wrong: [][3]string{{"pmap/pmap.py", "row**2", "row**3"}}, again: fmt.Sprintf(compare, "pmap") + " serial", says: "WRONG"},
	// A process is replaced before it passes its budget; the losses are those of a plain
	// run.
	{name: "cleanup", served: true, before: slots("9465"), line: fmt.Sprintf(compare, "cleanup"), prints: []string{
		`early \S+s [1-9]\d* 0 \d+MiB 16 of 16`, `long \S+s 0 2 \d+MiB 0 of 1`,
	}, wrong: [][3]string{{"cleanup/compare.py", "SEEDS = 16", "SEEDS = 1"}, {"cleanup/train.py", "default_rng(seed)", "default_rng()"}},
		says: `early .* 0 of 1 WRONG`},
	// The products of all ways are NumPy's.
	{name: "vignette", line: ".venv/bin/python examples/vignette/products.py", after: func(e *example, out string) {
		require.Len(e.t, regexp.MustCompile(`(?m)^(heavy|medium) .*\de-0[5-9] of the largest; allowed: 1e-05$`).FindAllString(out, -1), 8, out)
	}, wrong: [][3]string{{"vignette/products.py", "right = np.array", "right = 1.0001 * np.array"}}, says: "WRONG\n"},
	// The detector's scores are NumPy's, and the worker's histogram has the latency that the
	// results tell.
	{name: "sharing", served: true, before: func(e *example) {
		e.copy("internal/cli/bench")
		slots("9464")(e)
	}, line: `.venv/bin/python examples/sharing/latency.py $(grep -o '127.0.0.1:[0-9]*' examples/sharing/gpumux.yaml)`, prints: []string{
		`scores of 60 images: .*`, `gpumux_item_seconds: 60 items, .*`, `p90 \d+\.\dms between \S+ms and \S+ms; the results: \d+\.\dms`,
	}, wrong: [][3]string{{"sharing/latency.py", "right = np.", "right = 1.0001 * np."}},
		says: "of the largest beside NumPy's in 64 bits; allowed: 1e-05 WRONG\n"},
	// Slots beside a plain loop, with what they cannot do as a row, and with results that
	// are the loop's. What is missing is named before anything runs; what has no time is
	// left out.
	{name: "transformers", before: func(e *example) {
		e.write("rows.py", rowsTask)
		for _, missing := range []string{"--python .venv/plain/bin/python", "--gpumux nowhere", "rows.py:Rows --limit 0"} {
			_, code := e.sh(e.dir, fmt.Sprintf(compare, e.name)+" "+missing)
			require.Equal(e.t, 2, code, missing)
		}
	}, line: fmt.Sprintf(compare, "transformers") + " rows.py:Rows --seconds 2 --slots 1,2,auto --sharing default,none --json report.json", prints: []string{
		`loop 1 \d+ 8.0 \S+ 100% .*`, `1 default 1 \d+ .*`, `2 default [12] \d+ .*`, `2 none failed: .*`, `auto default \d+ .*`,
	}, after: transformers, wrong: [][3]string{{"../rows.py", "self.matrix @", "hasattr(gpumux, 'slot') + self.matrix @"}},
		again: fmt.Sprintf(compare, "transformers") + " rows.py:Rows --seconds 1 --slots 1 --sharing default", says: `1 default .* WRONG: \d+ of \d+ differ`},
	// Where processes are killed for want of memory a pool loses items or hangs; gpumux
	// finishes each item that fits, and names the one that does not.
	{name: "survive", line: fmt.Sprintf(compare, "survive") + " --items 20 --cases host --json report.json", prints: []string{
		`host gpumux 20 19 1 0 \d+ \S+s ended`, `host Pool 20 \d+ 0 [1-9]\d* [1-9]\d* \S+s hangs: idle for 10s`,
		`host Pool.map 20 0 0 20 [1-9]\d* 0.0s hangs: idle for 10s`, `host ProcessPoolExecutor 20 \d+ [1-9]\d* 0 1 \S+s ended`,
	}, after: func(e *example, _ string) {
		var report struct {
			Rows []struct{ Why []struct{ Says string } }
		}
		require.NoError(e.t, json.Unmarshal([]byte(e.file("report.json")), &report))
		require.Contains(e.t, report.Rows[0].Why[0].Says, "over the budget of all slots of the device")
		require.Contains(e.t, report.Rows[3].Why[0].Says, "BrokenProcessPool")
	}, wrong: [][3]string{{"survive/items.py", "    held = []\n", "    held = []\n    assert item['bytes'] < 2**29\n"}},
		again: fmt.Sprintf(compare, "survive") + " --items 10 --cases host --ways gpumux", says: `host gpumux 10 8 2 0 `},
}

func TestLong_Origins(t *testing.T) {
	for _, c := range origins {
		t.Run(c.name, func(t *testing.T) {
			e := offline(t, c.name)
			if c.served {
				e = newExample(t, c.name)
			}
			if c.before != nil {
				c.before(e)
			}
			out, code := e.sh(e.dir, c.line)
			require.Zero(t, code, out)
			require.NotContains(t, out, "WRONG")
			out = squeezed(out)
			for _, line := range c.prints {
				require.Regexp(t, "(?m)^"+line+"$", out)
			}
			if c.after != nil {
				c.after(e, out)
			}
			for _, w := range c.wrong {
				e.change("examples/"+w[0], w[1], w[2])
			}
			if c.again == "" {
				c.again = c.line
			}
			out, code = e.sh(e.dir, c.again)
			require.Equal(t, 1, code)
			require.Regexp(t, c.says, squeezed(out))
		})
	}
}

func transformers(e *example, out string) {
	require.NotContains(e.t, out, "auto none")
	var report struct {
		Rows []struct {
			Way                                 string
			Items, Compared, Differing, Slots   int
			ItemsPerSecond, WholeItemsPerSecond float64
			LatencyP50, Start, Peak             float64
		}
	}
	require.NoError(e.t, json.Unmarshal([]byte(e.file("report.json")), &report))
	require.Len(e.t, report.Rows, 5)
	for _, row := range report.Rows {
		if row.Way == "2 none" {
			continue
		}
		require.Positive(e.t, row.ItemsPerSecond, row.Way)
		require.Positive(e.t, row.Peak, row.Way)
		if row.Way != "loop" {
			require.Equal(e.t, row.Items, row.Compared, row.Way)
			require.Zero(e.t, row.Differing, row.Way)
		}
	}
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

// change puts one text in the place of another, in a file of the copy.
func (e *example) change(file, before, after string) {
	e.t.Helper()
	text := e.file(file)
	require.Contains(e.t, text, before)
	e.write(file, strings.Replace(text, before, after, 1))
}

// measured is a row of `gpumux bench --json`, as far as the examples read it.
type measured struct {
	Workload, Way, Sharing      string
	Clients, Items              int
	ItemsPerSecond, ItemSeconds quartiles
}

type quartiles struct {
	Q1, Median, Q3 float64
	Count          int
}

// table runs an example that makes a table of what gpumux measures, and returns it with
// the JSON that it is made of.
func (e *example) table(line, report string) (out string, rows []measured) {
	e.t.Helper()
	out, code := e.sh(e.dir, line)
	require.Zero(e.t, code, out)
	var found struct{ Rows []measured }
	require.NoError(e.t, json.Unmarshal([]byte(e.file(report)), &found))
	require.NotEmpty(e.t, found.Rows)
	return squeezed(out), found.Rows
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
}

// What the vignette expects is checked only where the quartiles lie apart.
func TestLong_OriginsVignetteExpects(t *testing.T) {
	e := offline(t, "vignette")
	row := func(workload, way string, clients int, middle, within float64, rounds int) string {
		quartiles := fmt.Sprintf(`{"median":%g,"q1":%g,"q3":%g,"count":%d}`, middle, middle-within, middle+within, rounds)
		return fmt.Sprintf(`{"workload":%q,"way":%q,"sharing":"default","clients":%d,"items":9,"itemSeconds":{"median":1},`+
			`"itemsPerSecond":%s}`, workload, way, clients, quartiles)
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

// Throughput and latency are shares of one bare process alone.
func TestLong_OriginsSharing(t *testing.T) {
	e := offline(t, "sharing")
	out, rows := e.table(".venv/bin/python examples/sharing/sharing.py --limit 1s --pool cpu --workloads detector --clients 1,3 "+
		"--framework numpy", "sharing.json")
	share := func(q, alone quartiles) string {
		if q.Count == 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.0f%% %.0f%%-%.0f%%", q.Median/alone.Median*100, q.Q1/alone.Median*100, q.Q3/alone.Median*100)
	}
	lines := 0
	var alone measured
	for _, row := range rows {
		if row.Way == "bare" && row.Clients == 1 {
			alone = row
		}
		if row.Way != "persistent" {
			continue
		}
		lines++
		require.Contains(t, out, fmt.Sprintf("\ndetector default %d %s %s %.1fms\n",
			row.Clients, share(row.ItemsPerSecond, alone.ItemsPerSecond), share(row.ItemSeconds, alone.ItemSeconds), row.ItemSeconds.Median*1000))
	}
	require.Equal(t, 2, lines)
}
