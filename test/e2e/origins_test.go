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
	}},
	// A process is replaced before it passes its budget; the losses are those of a plain
	// run.
	{name: "cleanup", served: true, before: slots("9465"), line: fmt.Sprintf(compare, "cleanup"), prints: []string{
		`early \S+s [1-9]\d* 0 \d+MiB 16 of 16`, `long \S+s 0 2 \d+MiB 0 of 1`,
	}},
	// The products of all ways are NumPy's.
	{name: "vignette", line: ".venv/bin/python examples/vignette/products.py", after: func(e *example, out string) {
		require.Len(e.t, regexp.MustCompile(`(?m)^(heavy|medium) .*\de-0[5-9] of the largest; allowed: 1e-05$`).FindAllString(out, -1), 8, out)
	}},
	// The detector's scores are NumPy's, and the worker's histogram has the latency that the
	// results tell.
	{name: "sharing", served: true, before: func(e *example) {
		e.copy("internal/cli/bench")
		slots("9464")(e)
	}, line: `.venv/bin/python examples/sharing/latency.py $(grep -o '127.0.0.1:[0-9]*' examples/sharing/gpumux.yaml)`, prints: []string{
		`scores of 60 images: .*`, `gpumux_item_seconds: 60 items, .*`, `p90 \d+\.\dms between \S+ms and \S+ms; the results: \d+\.\dms`,
	}},
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
	}, after: transformers},
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
	}},
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
