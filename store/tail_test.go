package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// taken are the indexes that one call of Each hands out.
func taken(t *testing.T, tail *Tail) []int64 {
	t.Helper()
	got := []int64{}
	require.NoError(t, tail.Each(t.Context(), func(line []byte) error {
		o, err := readOutcome(line)
		got = append(got, o.index)
		return err
	}))
	return got
}

func results(indexes ...int64) []gpumux.Result {
	var all []gpumux.Result
	for _, i := range indexes {
		all = append(all, gpumux.Result{Index: i, Value: []byte("1")})
	}
	return all
}

func TestTail_InOrderUpToTheFirstGap(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		tail, err := s.Tail("m/parts", TailOptions{})
		require.NoError(t, err)
		require.Empty(t, taken(t, tail), "the folder is not there yet")
		write := func(start, end int64, seq int, indexes ...int64) {
			require.NoError(t, s.WritePart(t.Context(), "m/parts", start, end, seq, results(indexes...)))
		}
		write(10, 20, 0, 10, 11)
		require.Empty(t, taken(t, tail))
		write(0, 10, 0, 0, 1, 3)
		require.Equal(t, []int64{0, 1}, taken(t, tail))
		require.Empty(t, taken(t, tail))
		write(0, 10, 1, 2, 4, 5)
		require.Equal(t, []int64{2, 3, 4, 5}, taken(t, tail))
		write(0, 10, 2, 6, 7, 8, 9)
		require.Equal(t, []int64{6, 7, 8, 9, 10, 11}, taken(t, tail))
		write(5, 15, 0, 5, 12, 13) // another cut, with one result that is there already
		require.Equal(t, []int64{12, 13}, taken(t, tail))
		require.EqualValues(t, 14, tail.Count())
	})
}

func TestTail_UnorderedHandsOutWhatIsThere(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		tail, err := s.Tail("m/parts", TailOptions{Unordered: true})
		require.NoError(t, err)
		write := func(start, end int64, seq int, indexes ...int64) {
			require.NoError(t, s.WritePart(t.Context(), "m/parts", start, end, seq, results(indexes...)))
		}
		write(10, 20, 0, 10, 12)
		require.Equal(t, []int64{10, 12}, taken(t, tail))
		write(10, 20, 1, 11, 12)
		write(0, 10, 0, 3)
		require.Equal(t, []int64{3, 11}, taken(t, tail))
		require.Empty(t, taken(t, tail))
		require.True(t, tail.Gave(12))
		require.False(t, tail.Gave(13))
	})
}

// Whatever the order in which parts come, every index is handed out once.
func TestTail_EachIndexOnce(t *testing.T) {
	s, err := Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer s.Close()
	const n = 500
	ordered, err := s.Tail("p", TailOptions{})
	require.NoError(t, err)
	any, err := s.Tail("p", TailOptions{Unordered: true})
	require.NoError(t, err)
	var chunks []part
	for at := int64(0); at < n; {
		end := min(n, at+1+rand.Int64N(20))
		chunks = append(chunks, part{start: at, end: end})
		at = end
	}
	rand.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
	var inOrder, all []int64
	for _, c := range chunks {
		var indexes []int64
		for i := c.start; i < c.end; i++ {
			indexes = append(indexes, i)
		}
		cut := rand.IntN(len(indexes) + 1)
		seq := 0
		for _, some := range [][]int64{indexes[:cut], indexes[cut:]} {
			if len(some) > 0 {
				require.NoError(t, s.WritePart(t.Context(), "p", c.start, c.end, seq, results(some...)))
				seq++
			}
			inOrder = append(inOrder, taken(t, ordered)...)
			all = append(all, taken(t, any)...)
		}
	}
	require.Len(t, inOrder, n)
	require.True(t, slices.IsSorted(inOrder))
	slices.Sort(all)
	require.Equal(t, inOrder, all)
	require.Empty(t, taken(t, ordered))
	require.Empty(t, ordered.read, "what is behind is forgotten")
	require.Len(t, any.given, 1)
}

func TestTail_AnErrorOfTheTakerEndsIt(t *testing.T) {
	s, err := Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.WritePart(t.Context(), "p", 0, 3, 0, results(0, 1, 2)))
	enough := errors.New("enough")
	for _, unordered := range []bool{false, true} {
		tail, err := s.Tail("p", TailOptions{Unordered: unordered})
		require.NoError(t, err)
		require.ErrorIs(t, tail.Each(t.Context(), func([]byte) error { return enough }), enough)
		require.Equal(t, []int64{1, 2}, taken(t, tail))
	}
}

func TestMerge_IndexReachesEveryStretch(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var all []int64
		for i := range int64(1000) {
			all = append(all, i)
		}
		require.NoError(t, s.WritePart(t.Context(), "m/parts", 0, 1000, 0, results(all...)))
		merged, err := s.Merge(t.Context(), gpumux.MergeInput{Parts: "m/parts", Output: "m/results.jsonl", Index: "m/results.index", Items: 1000}, nil)
		require.NoError(t, err)
		src := gpumux.Source{URL: merged.Output, Index: "m/results.index", Items: 1000, Bytes: merged.Bytes}
		require.Equal(t, []string{`{"index":998,"value":1}`, `{"index":999,"value":1}`}, itemsOf(t, s, src, 998, 1000))
	})
}
