package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

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

// Slots beside a plain loop, with what they cannot do as a row, and with results that are
// the loop's.
func TestLong_FiguresTransformers(t *testing.T) {
	e := offline(t, "transformers")
	e.write("rows.py", rowsTask)
	compare := ".venv/bin/python examples/transformers/compare.py "
	rows := compare + "rows.py:Rows --seconds 2 --slots 1,2,auto --sharing default,none --json report.json"
	out, code := e.sh(e.dir, rows)
	require.Zero(t, code, out)
	for _, want := range []string{`loop 1 \d+ 8.0 \S+ 100% .*`, `1 default 1 \d+ .*`, `2 default [12] \d+ .*`, `2 none failed: .*`, `auto default \d+ .*`} {
		require.Regexp(t, `(?m)^`+want+`$`, squeezed(out))
	}
	require.NotContains(t, out, "auto none")
	var report struct {
		Rows []struct {
			Way                                 string
			Items, Compared, Differing, Slots   int
			ItemsPerSecond, WholeItemsPerSecond float64
			LatencyP50, Start, Peak             float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(e.file("report.json")), &report))
	require.Len(t, report.Rows, 5)
	for _, row := range report.Rows {
		if row.Way == "2 none" {
			continue
		}
		require.Positive(t, row.ItemsPerSecond, row.Way)
		require.Positive(t, row.Peak, row.Way)
		if row.Way != "loop" {
			require.Equal(t, row.Items, row.Compared, row.Way)
			require.Zero(t, row.Differing, row.Way)
		}
	}

	// It tells when the results of slots are others.
	e.change("rows.py", "self.matrix @", "hasattr(gpumux, 'slot') + self.matrix @")
	out, code = e.sh(e.dir, compare+"rows.py:Rows --seconds 1 --slots 1 --sharing default")
	require.Equal(t, 1, code)
	require.Regexp(t, `1 default .* WRONG: \d+ of \d+ differ`, out)

	// What is missing is named before anything runs; what has no time is left out.
	for _, missing := range []string{"--python .venv/plain/bin/python", "--gpumux nowhere", "rows.py:Rows --limit 0"} {
		_, code = e.sh(e.dir, compare+missing)
		require.Equal(t, 2, code, missing)
	}
}

// Where processes are killed for want of memory a pool loses items or hangs; gpumux
// finishes each item that fits, and names the one that does not.
func TestLong_FiguresSurvive(t *testing.T) {
	e := offline(t, "survive")
	out, code := e.sh(e.dir, ".venv/bin/python examples/survive/compare.py --items 20 --cases host --json report.json")
	require.Zero(t, code, out)
	out = squeezed(out)
	require.Regexp(t, `(?m)^host gpumux 20 19 1 0 \d+ \S+s ended$`, out)
	require.Regexp(t, `(?m)^host Pool 20 \d+ 0 [1-9]\d* [1-9]\d* \S+s hangs: idle for 10s$`, out)
	require.Regexp(t, `(?m)^host Pool.map 20 0 0 20 [1-9]\d* 0.0s hangs: idle for 10s$`, out)
	require.Regexp(t, `(?m)^host ProcessPoolExecutor 20 \d+ [1-9]\d* 0 1 \S+s ended$`, out)
	var report struct {
		Rows []struct{ Why []struct{ Says string } }
	}
	require.NoError(t, json.Unmarshal([]byte(e.file("report.json")), &report))
	require.Contains(t, report.Rows[0].Why[0].Says, "over the budget of all slots of the device")
	require.Contains(t, report.Rows[3].Why[0].Says, "BrokenProcessPool")

	// It tells when an item is lost that fits.
	e.change("examples/survive/items.py", "    held = []\n", "    held = []\n    assert item['bytes'] < 2**29\n")
	out, code = e.sh(e.dir, ".venv/bin/python examples/survive/compare.py --items 10 --cases host --ways gpumux")
	require.Equal(t, 1, code)
	require.Regexp(t, `host gpumux 10 8 2 0 `, squeezed(out))
}
