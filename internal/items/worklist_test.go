package items

import (
	"math/rand/v2"
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

func TestWriteList_RoundTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
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
	})
}

// Runs that touch are one, in what travels as in a list.
func TestRestWriter_RunsThatTouch(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		for _, gaps := range []int64{0, 3, 2 * maxRuns} {
			rest, want := s.Sources.Rest("m.parts"), contract.Runs(nil)
			for i := range 3 * gaps {
				if i%3 < 2 {
					require.NoError(t, rest.Add(t.Context(), contract.Span{Start: i, End: i + 1}))
					want.Add(i)
				}
			}
			work, err := rest.Finish()
			require.NoError(t, err)
			require.Equal(t, gaps > maxRuns, work.List != nil)
			found, err := s.Sources.ItemsOf(t.Context(), work)
			require.NoError(t, err)
			require.Equal(t, want, found)
		}
	})
}

func TestItemsOf_RefusesWhatIsNoList(t *testing.T) {
	s := open(t, "mem://")
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
