package slot_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// Random state from the system differs between items, as in new interpreters. A seed of
// the task stays.
func TestFork_RandomState(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
import random
own, seeded = random.Random(), random.Random(7)
def item(x): return [random.random(), own.random(), seeded.random()]
`)
	s := f.slot("cpu/0", nil)
	columns(t, f.run(s, "item", ints(6)...), true, true, false)
	f.write("tasks.py", "import random\nrandom.seed(3)\ndef item(x): return [random.random(), 'gpumux.process.template' in sys.modules]\n")
	columns(t, f.run(s, "item", ints(4)...), false, false)
	require.Contains(t, f.run(s, "item", 0)[0], "true")
	f.write("tasks.py", `
import random
own = random.Random()
own.setstate(random.Random(5).getstate())
random.setstate(random.Random(9).getstate())
def item(x): return [own.random(), random.random(), 'gpumux.process.template' in sys.modules]
`)
	columns(t, f.run(s, "item", ints(4)...), false, false)
	require.Contains(t, f.run(s, "item", 0)[0], "true")
}

func TestFork_RandomStateOfNumPy(t *testing.T) {
	t.Parallel()
	interpreter := withModule(t, "numpy")
	f := newForge(t, `
import numpy as np
own, seeded = np.random.default_rng(), np.random.default_rng(7)
old, fixed = np.random.RandomState(), np.random.RandomState(7)
child = own.spawn(1)[0] if hasattr(own, "spawn") else np.random.default_rng()
def item(x): return [np.random.rand(), own.random(), old.rand(), child.random(), seeded.random(), fixed.rand()]
`)
	s := f.slot("cpu/0", nil)
	draw := func() []string {
		task := f.task("item")
		task.Interpreter = interpreter
		got, err := run(t, s, task, slot.Call{Work: work(ints(5)...)})
		require.NoError(t, err)
		var list []string
		for _, d := range got {
			list = append(list, string(d.Value))
		}
		return list
	}
	columns(t, draw(), true, true, true, true, false, false)
	f.write("tasks.py", "import numpy as np\nnp.random.seed(3)\ndef item(x): return [np.random.rand()]\n")
	columns(t, draw(), false)
	f.write("tasks.py", `
import numpy as np
put, listed, drawn = np.random.default_rng(), np.random.default_rng([1, 2, 3]), np.random.default_rng()
put.bit_generator.state = np.random.PCG64(5).state
drawn.random()
key = np.random.Generator(np.random.Philox())
key.bit_generator.state = np.random.Philox(5).state
fresh = np.random.Generator(np.random.Philox())
def item(x): return [put.random(), listed.random(), drawn.random(), key.random(), fresh.random()]
`)
	columns(t, draw(), false, false, true, false, true)
	require.NotEmpty(t, f.logged("template ready"))
	require.Empty(t, f.logged("get a new interpreter each"))
}

// columns checks at which positions the results of items differ.
func columns(t *testing.T, results []string, differ ...bool) {
	t.Helper()
	for at, want := range differ {
		values := map[string]bool{}
		for _, result := range results {
			var row []json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(result), &row))
			values[string(row[at])] = true
		}
		if want {
			require.Len(t, values, len(results), "column %d of %v", at, results)
		} else {
			require.Len(t, values, 1, "column %d of %v", at, results)
		}
	}
}

// A framework that was only imported can be forked and works in the child. After its
// first use jax can no longer be forked.
func TestFork_Frameworks(t *testing.T) {
	t.Parallel()
	for module, code := range map[string]struct{ use, sum string }{
		"jax":   {"import jax\njax.config.update('jax_platforms', 'cpu')\nimport jax.numpy as jnp\ndef use(x): return float((jnp.ones((64, 64)) @ jnp.ones((64, 64))).sum()) + x\n", "262144"},
		"torch": {"import torch\ndef use(x): return float((torch.ones(512, 512) @ torch.ones(512, 512)).sum()) + x\n", "134217728"},
		"numpy": {"import numpy as np\ndef use(x): return float((np.ones((512, 512)) @ np.ones((512, 512))).sum()) + x\n", "134217728"},
	} {
		t.Run(module, func(t *testing.T) {
			interpreter := withModule(t, module)
			item := code.use + "def item(x): return [use(x), 'gpumux.process.template' in sys.modules]\n"
			f := newForge(t, item)
			s := f.slot("cpu/0", nil)
			first := func() string {
				task := f.task("item")
				task.Interpreter = interpreter
				got, err := run(t, s, task, slot.Call{Work: work(0, 0)})
				require.NoError(t, err)
				require.Equal(t, got[0].Value, got[1].Value)
				return string(got[0].Value)
			}
			require.Equal(t, "["+code.sum+".0,true]", first())
			if module == "jax" {
				f.write("tasks.py", item+"began = use(0)\n")
				require.Equal(t, "["+code.sum+".0,false]", first())
				require.Contains(t, f.logged("cannot be forked")[0].ContextMap()["why"], "threads")
			}
		})
	}
}

// withModule finds a Python that has a module, among those in GPUMUX_TEST_FRAMEWORKS and
// the tests' own.
func withModule(t *testing.T, module string) string {
	t.Helper()
	venv, err := filepath.Abs("../../.venv/bin/python")
	require.NoError(t, err)
	for _, each := range append(filepath.SplitList(os.Getenv("GPUMUX_TEST_FRAMEWORKS")), os.Getenv("GPUMUX_TEST_PYTHON"), venv, "python3") {
		if each != "" && exec.Command(each, "-c", "import "+module).Run() == nil {
			return each
		}
	}
	reason := rig.Framework
	if module == "numpy" {
		reason = rig.NumPy
	}
	rig.Because(t, reason, "none here has ", module, "; GPUMUX_TEST_FRAMEWORKS lists more of them")
	return ""
}
