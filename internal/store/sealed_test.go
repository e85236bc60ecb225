package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
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
