package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/objects"
)

// ring makes a key of 32 equal bytes.
func ring(t *testing.T, id, digit string) *codec.Keys {
	t.Helper()
	file := filepath.Join(t.TempDir(), id+".key")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat(digit, 64)), 0o600))
	keys, err := codec.Load(file)
	require.NoError(t, err)
	return keys
}

// A damaged part of a store with keys is set aside as it is, and its items run again.
// Parts under a wrong key stay in place.
func TestSealed_DamagedParts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir, ring(t, "a", "1"))
	write := func() string {
		a := folderOf(t, s, "m.parts").Append()
		for i := range int64(3) {
			require.NoError(t, a.Add(gpumux.Result{Index: i, Value: []byte("\"marker\"")}))
		}
		require.NoError(t, a.Flush(t.Context()))
		found, err := filepath.Glob(filepath.Join(dir, "m.parts", "*.jsonl"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	for name, change := range map[string]func([]byte) []byte{
		"flipped":             func(b []byte) []byte { b[len(b)-20] ^= 1; return b },
		"cut off":             func(b []byte) []byte { return b[:len(b)-1] },
		"to half of its head": func(b []byte) []byte { return b[:60] },
		"empty":               func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			part := write()
			lying, err := os.ReadFile(part)
			require.NoError(t, err)
			lying = change(lying)
			require.NoError(t, os.WriteFile(part, lying, 0o600))
			found, err := s.FindParts(t.Context(), contract.PartsInput{Parts: "m.parts", Items: 3})
			require.NoError(t, err)
			require.Len(t, found.Damaged, 1)
			require.Zero(t, found.Succeeded)
			aside, err := os.ReadFile(filepath.Join(dir, "m.parts", "damaged", filepath.Base(part)))
			require.NoError(t, err)
			require.True(t, bytes.Equal(lying, aside))
			_, err = os.Stat(part)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
	part := write()
	_, err := open(t, "file://"+dir, ring(t, "a", "2")).FindParts(t.Context(), contract.PartsInput{Parts: "m.parts", Items: 3})
	var key *objects.KeyError
	require.ErrorAs(t, err, &key)
	_, err = os.Stat(part)
	require.NoError(t, err, "nothing is set aside for want of the key")
}

// A store's identity does not depend on keys: it is the same with and without them, and
// when they change.
func TestSealed_TheIdentityIsPlain(t *testing.T) {
	url := "file://" + t.TempDir()
	before, err := open(t, url, nil).Identity(t.Context())
	require.NoError(t, err)
	after, err := open(t, url, ring(t, "a", "1")).Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	url = "file://" + t.TempDir()
	before, err = open(t, url, ring(t, "a", "1")).Identity(t.Context())
	require.NoError(t, err)
	after, err = open(t, url, ring(t, "b", "2")).Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// A store with keys leaves no plain text on its disk. A store without keys says which key
// is missing.
func TestSealed_AMapsObjects(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + dir
	s := open(t, url, ring(t, "a", "1"))
	const n = 3000
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "\"marker-%d\"\n", i)
	}
	spooled, err := items.SpoolReader(strings.NewReader(lines.String()), "items", items.JSONLines)
	require.NoError(t, err)
	defer spooled.Remove()
	src, err := s.Sources.Put(t.Context(), spooled)
	require.NoError(t, err)
	require.Equal(t, int64(lines.Len()), src.Bytes)
	known, err := s.Sources.Find(t.Context(), src.URL, "maps/m/source.index")
	require.NoError(t, err)
	require.Equal(t, src, known)
	var results []gpumux.Result
	for item, err := range s.Sources.Items(t.Context(), src, 0, n) {
		require.NoError(t, err)
		results = append(results, gpumux.Result{Index: int64(len(results)), Value: item})
	}
	require.Len(t, results, n)
	at := int64(2777)
	for item, err := range s.Sources.Items(t.Context(), src, at, at+20) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%q", fmt.Sprintf("marker-%d", at)), string(item))
		at++
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), "marker", path)
		require.True(t, bytes.HasPrefix(data, []byte("gpumuxs\x01")), path)
		return err
	}))

	without := open(t, url, nil)
	for name, read := range map[string]func() error{
		"source": func() error { _, err := without.Sources.Find(t.Context(), src.URL, "maps/m/source.index"); return err },
		"items": func() error {
			for _, err := range without.Sources.Items(t.Context(), src, 0, 1) {
				return err
			}
			return nil
		},
		"put": func() error { _, err := without.Sources.Put(t.Context(), spooled); return err },
	} {
		var key *objects.KeyError
		require.ErrorAs(t, read(), &key, name)
		require.ErrorContains(t, read(), "codec.keys", name)
	}
}
