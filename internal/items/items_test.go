package items

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// readable returns the items of a source up to the error.
func readable(t *testing.T, s *store, src contract.Source) (items []string, failed error) {
	for item, err := range s.Sources.Items(t.Context(), src, 0, src.Items) {
		if err != nil {
			return items, err
		}
		items = append(items, string(item))
	}
	return items, nil
}

// final fails the test unless reading again cannot help.
func final(t *testing.T, err error, why string) {
	var mistake *gpumux.SourceError
	require.ErrorAs(t, err, &mistake, why)
}

// sourceDamages are what can happen to a file, by name. Flipped bytes come on top.
var sourceDamages = map[string]func([]byte) []byte{
	"cut off":   func(b []byte) []byte { return b[:len(b)-1] },
	"half":      func(b []byte) []byte { return b[:len(b)/2] },
	"the start": func(b []byte) []byte { return b[:10] },
	"empty":     func([]byte) []byte { return nil },
	"longer":    func(b []byte) []byte { return append(b, '1', '\n') },
	"shifted":   func(b []byte) []byte { return append(bytes.Clone(b[16:]), b[:16]...) },
	"exchanged": func(b []byte) []byte {
		return bytes.Join([][]byte{b[:16], b[32:48], b[16:32], b[48:]}, nil)
	},
	"gone": nil,
}

// Damage to the lines or the index never changes an item. The next one to put the same
// items there heals it, once lines that are damaged were deleted.
func TestPutSource_HealsWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	identify(t, s)
	all, tidy, _ := numbered(1000)
	want := all
	spooled := spool(t, tidy, JSONLines)
	src, err := s.Sources.Put(t.Context(), spooled)
	require.NoError(t, err)
	for _, file := range []string{spooled.Hash + ".jsonl", spooled.Hash + ".index"} {
		file = filepath.Join(dir, "sources", file)
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		damage := func(why string, data []byte) {
			if data != nil && bytes.Equal(whole, data) {
				return
			}
			require.NoError(t, os.Remove(file))
			if data != nil {
				require.NoError(t, os.WriteFile(file, data, 0o600))
			}
			got, err := readable(t, s, src)
			if err != nil {
				final(t, err, why)
				want = want[:len(got)]
			}
			require.True(t, slices.Equal(want, got), why)
			want = all

			found, err := s.Sources.Find(t.Context(), src.URL, "maps/m/source.index")
			if err == nil {
				require.Equal(t, src.Hash, found.Hash)
				if got, err = readable(t, s, found); err == nil {
					require.True(t, slices.Equal(want, got), why)
				} else {
					final(t, err, why)
				}
			} else if !errors.Is(err, os.ErrNotExist) {
				final(t, err, why)
			}

			if file == filepath.Join(dir, "sources", spooled.Hash+".jsonl") {
				require.NoError(t, s.Objects.Delete(t.Context(), src.URL))
			}
			again, err := s.Sources.Put(t.Context(), spooled)
			require.NoError(t, err, why)
			require.Equal(t, src, again)
			got, err = readable(t, s, again)
			require.NoError(t, err, why)
			require.True(t, slices.Equal(want, got), why)
		}
		for why, change := range sourceDamages {
			if change == nil {
				damage(why, nil)
				continue
			}
			damage(why, append([]byte{}, change(bytes.Clone(whole))...))
		}
		step := max(1, len(whole)/25)
		for at := 0; at < len(whole); at += step {
			data := bytes.Clone(whole)
			data[at] ^= 1
			damage("a flipped bit", data)
		}
	}
}

// The message names the object and what to do.
func TestItems_SayWhatIsDamaged(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		src, err := s.Sources.Put(t.Context(), spool(t, strings.Repeat("12345\n", 1000), JSONLines))
		require.NoError(t, err)
		put(t, s, src.URL, strings.Repeat("12345\n", 200)+"99999\n"+strings.Repeat("12345\n", 799))
		require.Len(t, itemsOf(t, s, src, 0, 128), 128, "other stretches are whole")
		got, err := readable(t, s, src)
		require.EqualError(t, err, src.URL+": damaged, or changed since it was indexed: bytes 768 to 1535 are others; "+
			"give the same command again, which puts it there anew; where a program named it, delete it and put it there again")
		require.Len(t, got, 128)
		// Its index is gone now, so nobody takes it over.
		_, err = s.Sources.Find(t.Context(), src.URL, "maps/m/source.index")
		require.EqualError(t, err, src.URL+": damaged, or changed since it was indexed: its size, or its index "+s.Objects.Locate(src.Index)+", is not what was put there; "+
			"give the same command again, which puts it there anew; where a program named it, delete it and put it there again")
	})
}

// A store that is away as a whole comes back, and so may an object of it.
func TestItems_AStoreThatIsAwayIsNoDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, "file://"+dir)
	identify(t, s)
	src, err := s.Sources.Put(t.Context(), spool(t, "1\n", JSONLines))
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+"-away"))
	_, err = readable(t, s, src)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, errors.As(err, new(*gpumux.SourceError)))
	require.NoError(t, os.Rename(dir+"-away", dir))
	require.Equal(t, []string{"1"}, itemsOf(t, s, src, 0, 1))
}
