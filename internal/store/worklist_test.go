package store

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

// The rest of a map is exactly the items without a result, also if they are scattered and
// cut into pieces.
func TestFind_RestIsTheComplement(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		lists := 0
		for round := range 10 {
			folder := "maps/" + strings.Repeat("x", round+1)
			n, burst, share := 4000+rand.Int64N(1000), int64(1), 0.5 // more runs than travel in a list
			if round%5 > 0 {
				n, burst, share = 1+rand.Int64N(5000), 1+rand.Int64N(20), rand.Float64()
			}
			a, have := folderOf(t, s, folder).Append(), 0
			var want contract.Runs
			present := false
			for i := range n {
				if i%burst == 0 {
					present = rand.Float64() < share
				}
				if present {
					have++
					require.NoError(t, a.Add(value(i, "1")))
				} else {
					want.Add(i)
				}
			}
			require.NoError(t, a.Flush(t.Context()))
			found, err := s.FindParts(t.Context(), contract.PartsInput{Parts: folder, Items: n})
			require.NoError(t, err)
			require.EqualValues(t, have, found.Stages[0].Succeeded)
			require.EqualValues(t, want.Len(), found.Stages[0].Rest.Len())
			require.Equal(t, len(want) > 1000, found.Stages[0].Rest.List != nil)
			if found.Stages[0].Rest.List != nil {
				lists++
				require.Empty(t, found.Stages[0].Rest.Runs)
			}
			var got contract.Runs
			for rest := found.Stages[0].Rest; rest.Len() > 0; {
				size := 1 + rand.Int64N(1500)
				before := rest.Len()
				piece := rest.Take(size)
				require.LessOrEqual(t, piece.Len(), size)
				require.Positive(t, piece.Len())
				require.EqualValues(t, before, piece.Len()+rest.Len())
				if piece.Len() > 1 { // a chunk that was handed back half done
					n := 1 + rand.Int64N(piece.Len()-1)
					after := piece.After(n)
					done := piece.Cut(n)
					require.Equal(t, after, piece)
					items, err := s.Sources.ItemsOf(t.Context(), done)
					require.NoError(t, err)
					got = got.Union(items)
				}
				items, err := s.Sources.ItemsOf(t.Context(), piece)
				require.NoError(t, err)
				require.EqualValues(t, piece.Len(), items.Len())
				got = got.Union(items)
			}
			require.Equal(t, append(contract.Runs{}, want...), append(contract.Runs{}, got...))
		}
		require.Positive(t, lists)
	})
}
