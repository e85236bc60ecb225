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
			found, err := s.Find(t.Context(), contract.PartsInput{Parts: folder, Items: n})
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

func TestWriteList_RoundTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for range 10 {
			runs, _ := someItems(3000)
			work, err := s.Sources.WriteList(t.Context(), "m.parts", runs)
			require.NoError(t, err)
			require.EqualValues(t, runs.Len(), work.Len())
			items, err := s.Sources.ItemsOf(t.Context(), work)
			require.NoError(t, err)
			require.Equal(t, runs, items)
		}
		_, err := s.Sources.WriteList(t.Context(), "../m", nil)
		require.ErrorContains(t, err, "is not a key")
		names, err := folderOf(t, s, "m.parts").names(t.Context())
		require.NoError(t, err)
		require.Empty(t, names, "a list is no part")
	})
}

func TestItemsOf_RefusesWhatIsNoList(t *testing.T) {
	s := open(t, "mem://", nil)
	for _, text := range []string{"1\n1\n", "2\n1\n", "1\n\"2\"\n", "-1\n2\n", "1\n1.5\n", "1\n99999999999999999999\n"} {
		put(t, s, "list.jsonl", text)
		src, err := s.Sources.Find(t.Context(), "list.jsonl", "list.index")
		require.NoError(t, err)
		_, err = s.Sources.ItemsOf(t.Context(), contract.Work{List: &src, End: 2})
		require.ErrorContains(t, err, "mem:///list.jsonl: this is no work list: ", text)
	}
	put(t, s, "list.jsonl", "1\n2\n3\n")
	src, err := s.Sources.Find(t.Context(), "list.jsonl", "list.index")
	require.NoError(t, err)
	_, err = s.Sources.ItemsOf(t.Context(), contract.Work{List: &src, Start: 1, End: 4})
	require.ErrorContains(t, err, "items 1 to 4 are not all in")
	items, err := s.Sources.ItemsOf(t.Context(), contract.Work{List: &src, Start: 1, End: 3})
	require.NoError(t, err)
	require.Equal(t, contract.Runs{{Start: 2, End: 4}}, items)
	require.NoError(t, s.Objects.Delete(t.Context(), "list.jsonl"))
	_, err = s.Sources.ItemsOf(t.Context(), contract.Work{List: &src, End: 1})
	require.ErrorContains(t, err, "read the work list: ")
}
