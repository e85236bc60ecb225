package launch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change of any module beside the task that it imports, however that is written, makes
// another edition.
func TestEdition_ImportedModules(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "embed.py", `"""Uses helpers, numpy."""
import json, a.b as ab, c
from d import (  # several
    e,
    f as g,
)
try: import h
except ImportError: pass; import i
from j import k, \
    l
def embed(x):
    from m import n
`)
	imported := []string{"a/__init__.py", "a/b.py", "c.py", "d/__init__.py", "d/e.py", "d/f.py", "h.py", "i.py", "j/k.py", "j/l.py", "m.py",
		"d/near.py", "top.py", "a/other.py"}
	for _, name := range append([]string{"numpy/unused.py", "unused.py", "d/unused.py"}, imported...) {
		write(t, name, "")
	}
	write(t, "d/e.py", "from . import near\nfrom .missing import x\nfrom .. import top\nimport e\n")
	write(t, "a/b.py", "from .other import *\nimport embed\n")
	require.NoError(t, syscall.Mkfifo("e.py", 0o600))
	for _, code := range []Code{{Target: "embed.py:embed"}, {Target: "embed:embed"}, {Command: []string{"sh", "embed.py"}}} {
		before := code.Edition()
		for _, name := range imported {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			write(t, name, string(text)+"x = 2\n")
			require.NotEqual(t, before, code.Edition(), "%s, imported by %v", name, code)
			write(t, name, string(text))
		}
		for _, name := range []string{"numpy/unused.py", "unused.py", "d/unused.py"} {
			write(t, name, "x = 2")
			require.Equal(t, before, code.Edition(), name)
			write(t, name, "")
		}
	}
}

// The packages around a module are imported with it.
func TestEdition_ModuleOfAPackage(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "p/__init__.py", "")
	write(t, "p/task.py", "from .near import x\n")
	write(t, "p/near.py", "")
	code := Code{Target: "p.task:f"}
	for _, name := range []string{"p/__init__.py", "p/task.py", "p/near.py"} {
		before := code.Edition()
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		write(t, name, string(text)+"x = 2\n")
		require.NotEqual(t, before, code.Edition(), name)
	}
}

func TestEdition_OfRCountsWhatItSources(t *testing.T) {
	dir := t.TempDir()
	text := "source('near.R')\nif (TRUE) sys.source(\n file = \"deep/more.R\", globalenv())\n# source('never.R')\n"
	write(t, filepath.Join(dir, "fit.R"), text)
	for _, name := range []string{"near.R", "deep/more.R", "never.R", "other.R"} {
		write(t, filepath.Join(dir, name), "1\n")
	}
	code := Code{Dir: dir, Target: "fit.R:fit"}
	before := code.Edition()
	require.Len(t, before, 6)
	require.NotEqual(t, before, Code{Dir: dir, Target: "fit.R:other"}.Edition())
	for name, counts := range map[string]bool{"fit.R": true, "near.R": true, "deep/more.R": true, "never.R": false, "other.R": false} {
		changed := map[bool]string{true: "source('near.R')\nsource('deep/more.R')\n", false: "2\n"}[name == "fit.R"]
		write(t, filepath.Join(dir, name), changed)
		require.Equal(t, counts, code.Edition() != before, name)
		before = code.Edition()
	}
}
