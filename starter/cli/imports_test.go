package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change of any module beside the task that it imports, however that is written, makes another edition.
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
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		write(t, name, "")
	}
	write(t, "d/e.py", "from . import near\nfrom .missing import x\nfrom .. import top\nimport e\n")
	write(t, "a/b.py", "from .other import *\nimport embed\n")
	require.NoError(t, syscall.Mkfifo("e.py", 0o600))
	for _, given := range [][]string{{"embed.py:embed"}, {"embed:embed"}, {"", "python3", "embed.py"}} {
		before := edition(t, given[0], given[1:]...)
		for _, name := range imported {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			write(t, name, string(text)+"x = 2\n")
			require.NotEqual(t, before, edition(t, given[0], given[1:]...), "%s, imported by %v", name, given)
			write(t, name, string(text))
		}
		for _, name := range []string{"numpy/unused.py", "unused.py", "d/unused.py"} {
			write(t, name, "x = 2")
			require.Equal(t, before, edition(t, given[0], given[1:]...), name)
			write(t, name, "")
		}
	}
}

func TestEdition_OfAReduceCountsWhereTheTaskHasNone(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "join.py", "def join(pair): return pair")
	local, err := parseLocalTask("json:dumps", nil, localFlags{}, "")
	require.NoError(t, err)
	require.Empty(t, local.edition)
	reduce := "join.py:join"
	require.NoError(t, local.reduceWith(&reduce, localFlags{}))
	before := local.whole()
	require.Len(t, before, 6)
	write(t, "join.py", "def join(pair): return 1")
	require.NoError(t, local.reduceWith(&reduce, localFlags{}))
	require.NotEqual(t, before, local.whole())
}
