package store

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestOpenSource_EveryPosition(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 3*sealSegment/16) + "the end"
	check := func(t *testing.T, s *Store) {
		put(t, s, "in/x.parquet", large)
		for _, name := range []string{"in/x.parquet", s.Objects.Locate("in/x.parquet")} {
			at, err := objects.OpenAt(t.Context(), s.Objects, name)
			require.NoError(t, err)
			require.EqualValues(t, len(large), at.Size())
			for range 30 {
				from := rand.IntN(len(large))
				data := make([]byte, rand.IntN(2*sealSegment))
				n, err := at.ReadAt(data, int64(from))
				if from+len(data) > len(large) {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err)
				}
				require.True(t, large[from:min(len(large), from+len(data))] == string(data[:n]), "%d bytes at %d", len(data), from)
			}
			require.NoError(t, at.Close())
		}
		_, err := objects.OpenAt(t.Context(), s.Objects, "file:///etc/passwd")
		require.ErrorAs(t, err, new(*NameError))
	}
	eachStore(t, check)
	t.Run("sealed", func(t *testing.T) { check(t, open(t, s3test.New(t).URL(""), oldRing)) })
}

// Two versions of a file are never read as one.
func TestOpenSource_Replaced(t *testing.T) {
	s := open(t, "mem://", nil)
	put(t, s, "x.parquet", "one")
	at, err := objects.OpenAt(t.Context(), s.Objects, "x.parquet")
	require.NoError(t, err)
	put(t, s, "x.parquet", "three")
	_, err = at.ReadAt(make([]byte, 1), 0)
	require.ErrorContains(t, err, "x.parquet: it was replaced while it was read; try again")
	require.False(t, errors.As(err, new(*SourceError)), "reading it again helps")
}
