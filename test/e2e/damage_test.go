package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// harms are what can happen to an object of an input in the store, the lines or their
// index. Those that leave its size show only when items are read.
var harms = []struct {
	name, ending string
	change       func([]byte) []byte
}{
	{"a line of the same length", ".jsonl", func(b []byte) []byte { return otherByte(b, len(b)/2) }},
	{"the lines cut off", ".jsonl", func(b []byte) []byte { return b[:len(b)/2] }},
	{"a mark", ".index", func(b []byte) []byte { return otherByte(b, len(b)/2) }},
}

// otherByte changes a byte that ends no line.
func otherByte(b []byte, at int) []byte {
	b = bytes.Clone(b)
	for b[at] == '\n' {
		at++
	}
	b[at] ^= 1
	return b
}

// harm changes the one source of a store, and returns the file.
func harm(t *testing.T, store, ending string, change func([]byte) []byte) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store, "sources", "*"+ending))
	require.NoError(t, err)
	require.Len(t, found, 1)
	data, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(found[0], change(data), 0o600))
	return found[0]
}

// The same command again puts the input there anew. It never gives another item's value.
func TestTrust_ADamagedInputIsPutAgain(t *testing.T) {
	t.Parallel()
	v := newVault(t, false)
	v.worker()
	s := v.shell
	args := []string{"map", "double", "--in", "items.jsonl", "--pool", "host", "--out", "r.jsonl"}
	s.write("items.jsonl", numbers(3000))
	right := func() {
		for i, line := range s.lines(s.file("r.jsonl")) {
			require.Equal(t, strconv.Itoa(2*i), string(line["value"]))
		}
		require.NoError(t, os.Remove(s.path("r.jsonl")))
	}
	s.run(0, args...)
	right()
	for _, h := range harms {
		file := harm(t, s.path("store"), h.ending, h.change)
		p := s.begin(args...)
		if p.code() != 0 {
			// Who finds the damage deletes the index, which another chunk may miss first.
			both := regexp.QuoteMeta(strings.TrimSuffix(file, filepath.Ext(file))) + `\.(jsonl|index): damaged, or changed since it was indexed: `
			require.Regexp(t, both, p.stderr.String())
			require.Contains(t, p.stderr.String(), "give the same command again")
			s.run(0, args...)
		}
		right()
	}
}
