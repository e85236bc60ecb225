package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const filesPy = `
import gpumux, os, signal
def plot(x):
    gpumux.save("plot.png", str(x) * 100_000)
    if x == 7 and not os.path.exists("died"):
        gpumux.save("never.png", b"x")
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if x == 11 and not os.path.exists("mended"): raise ValueError("eleven")
    if x % 10 == 0: gpumux.save("tens.txt", "ten")
    return x
`

// files are the contents below a folder, by path.
func (s *shell) files(folder string) map[string]string {
	found := map[string]string{}
	require.NoError(s.t, filepath.WalkDir(s.path(folder), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var text []byte
			text, err = os.ReadFile(path)
			found[strings.TrimPrefix(path, s.path(folder)+"/")] = string(text)
		}
		return err
	}))
	return found
}

// plots are the files that filesPy keeps of so many items, without those of one that
// failed.
func plots(n, failed int) map[string]string {
	want := map[string]string{}
	for i := range n {
		if name := strconv.Itoa(i); i != failed {
			want[name+"/plot.png"] = strings.Repeat(name, 100_000)
			if i%10 == 0 {
				want[name+"/tens.txt"] = "ten"
			}
		}
	}
	return want
}

// Every file of an item that succeeded is there once and whole, also where its process
// was killed, and goes along with its result.
func TestFiles_OfALocalMap(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.env = append(s.env, "TMPDIR="+s.path("tmp"))
	require.NoError(t, os.Mkdir(s.path("tmp"), 0o755))
	s.write("files.py", filesPy)
	mapped := []string{"map", "files.py:plot", "--range", "0:30", "--local", "--id", "plots",
		"--out", "r.jsonl", "--json"}
	p := s.run(1, mapped...)
	require.Equal(t, plots(30, 11), s.files("plots.files"), "they are beside the results by default")
	var summary struct {
		Files  int
		Folder string
	}
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &summary))
	require.Equal(t, 32, summary.Files)
	require.Equal(t, "plots.files", summary.Folder)
	results := s.lines(s.file("r.jsonl"))
	require.JSONEq(t, `["plot.png"]`, string(results[7]["files"]), "not those of the try that died")
	require.JSONEq(t, `["plot.png","tens.txt"]`, string(results[10]["files"]))
	require.Nil(t, results[11]["files"])

	s.write("mended", "")
	s.run(0, append(mapped, "--retry", "--files", "retried")...)
	require.Equal(t, plots(30, -1), s.files("retried"), "the files of the items that did not run again are there too")
	left, err := filepath.Glob(s.path("tmp/gpumux-files-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	s.write("taken", "")
	bad := s.run(2, append(mapped, "--files", "taken")...)
	require.Contains(t, bad.stderr.String(), "--files taken")
	s.write("one.jsonl", "1\n")
	one := s.run(1, "stream", "files.py:plot", "--in", "one.jsonl")
	require.Contains(t, one.stdout.String(), "no place for files")
}

// Files of a map with a server stay in the store until somebody fetches them.
func TestFiles_AreFetchedFromAStore(t *testing.T) {
	t.Parallel()
	v := newVault(t, false)
	v.write("secret.py", filesPy+"secret = plot\ndef pick(pair): return max(pair)\ndef broken(pair): pass\n")
	v.worker()
	p := v.shell.run(0, "map", "secret", "--range", "0:5", "--pool", "host", "--id", "plots", "--out", "r.jsonl")
	require.Contains(t, p.stderr.String(), "gpumux results plots --files DIR")
	v.shell.run(0, "results", "plots", "--out", "again.jsonl", "--files", "out")
	require.Equal(t, plots(5, -1), v.files("out"))
	kept := 0
	for name := range v.files("store") {
		if strings.Contains(name, ".parts/files/") {
			kept++
		}
	}
	require.Equal(t, 6, kept)
}
