package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// packed are the numbers below n, compressed.
func packed(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	to := bufio.NewWriter(w)
	_, err := to.WriteString(numbers(n))
	require.NoError(t, err)
	require.NoError(t, to.Flush())
	require.NoError(t, w.Close())
	return b.String()
}

// A compressed file is a source in the store and on the command line, from a file, a
// stream and a URL.
func TestLocal_CompressedInputAndReduce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	text := packed(t, 3000)
	s.write("items.jsonl.gz", text)
	s.write("add.py", "def add(pair): return pair[0] + pair[1]\n")
	for _, in := range []string{"items.jsonl.gz", "file://" + s.path("items.jsonl.gz")} {
		p := s.run(0, "map", "step.py:double", "--in", in, "--local", "--out", "r.jsonl", "--reduce", "add.py:add", "--json")
		var sum gpumux.Summary
		require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &sum))
		require.Equal(t, "8997000", string(sum.Reduced))
		require.Len(t, s.lines(s.file("r.jsonl")), 3000)
	}
	s.write("cut.jsonl.gz", text[:len(text)/2])
	p := s.run(2, "map", "step.py:double", "--in", "cut.jsonl.gz", "--local")
	require.Contains(t, p.stderr.String(), "cut.jsonl.gz: the gzip archive is cut off")
	p = s.run(2, "map", "step.py:double", "--range", "0:3", "--local", "--reduce", "add.py:none", "--out", "x.jsonl")
	require.Contains(t, p.stderr.String(), "has no function none")
}

// A URL in the workers' store is read by them where it lies; any other is read here.
func TestMap_InputFromAURL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hand()
	s.serve(h.config(2))
	here := newShell(t)
	here.at(s)
	inside := filepath.Join(s.dir, "store", "in")
	require.NoError(t, os.MkdirAll(inside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(inside, "a.jsonl.gz"), []byte(packed(t, 3000)), 0o644))
	here.write("b.jsonl.gz", packed(t, 3000))
	sources := func() int {
		found, err := filepath.Glob(filepath.Join(s.dir, "store", "sources", "*.jsonl"))
		require.NoError(t, err)
		return len(found)
	}
	for i, file := range []string{filepath.Join(inside, "a.jsonl.gz"), here.path("b.jsonl.gz")} {
		p := here.run(0, "map", "echo", "--in", "file://"+file, "--pool", "cpu", "--reduce", "join", "--json", "--out", "r.jsonl")
		var sum gpumux.Summary
		require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &sum))
		require.Equal(t, "4498500", string(sum.Reduced))
		require.Equal(t, i, sources(), "only the file outside of the store was copied")
	}
	p := here.run(2, "map", "echo", "--in", "file://"+here.path("none.jsonl"), "--pool", "cpu")
	require.Contains(t, p.stderr.String(), "no such file")
	require.True(t, strings.HasPrefix(p.stderr.String(), "gpumux: --in"), p.stderr.String())
}
