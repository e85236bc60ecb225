package store

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

// someItems picks a subset of 0..n in one of many patterns, as runs and as a set.
func someItems(n int64) (runs contract.Runs, set map[int64]bool) {
	set = map[int64]bool{}
	share := rand.Float64()
	if rand.IntN(4) == 0 {
		share = float64(rand.IntN(2))
	}
	burst := 1 + rand.Int64N(20)
	for at := int64(0); at < n; at += burst {
		if rand.Float64() < share {
			for i := at; i < min(n, at+burst); i++ {
				runs.Add(i)
				set[i] = true
			}
		}
	}
	return runs, set
}

// The rest of a map is exactly the items without a result, also if they are scattered and
// cut into pieces.
func TestFind_RestIsTheComplement(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		lists := 0
		for round := range 30 {
			folder := "maps/" + strings.Repeat("x", round+1)
			n := 1 + rand.Int64N(5000)
			if round%5 == 0 {
				n += 4 * 1000
			}
			_, have := someItems(n)
			if round%5 == 0 {
				for i := range n {
					delete(have, i)
					if i%2 == 0 {
						have[i] = true
					}
				}
			}
			a := folderOf(t, s, folder).Append()
			var want contract.Runs
			for i := range n {
				if have[i] {
					require.NoError(t, a.Add(value(i, "1")))
				} else {
					want.Add(i)
				}
			}
			require.NoError(t, a.Flush(t.Context()))
			found, err := s.FindParts(t.Context(), contract.PartsInput{Parts: folder, Items: n})
			require.NoError(t, err)
			require.EqualValues(t, len(have), found.Succeeded)
			require.EqualValues(t, want.Len(), found.Rest.Len())
			require.Equal(t, len(want) > 1000, found.Rest.List != nil)
			if found.Rest.List != nil {
				lists++
				require.Empty(t, found.Rest.Runs)
			}
			var got contract.Runs
			for rest := found.Rest; rest.Len() > 0; {
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
