package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// taken returns the indices that one call of Lines hands out.
func taken(t *testing.T, tail *Tail) []int64 {
	t.Helper()
	got := []int64{}
	for line, err := range tail.Lines(t.Context(), nil) {
		require.NoError(t, err)
		outcome, err := results.ParseOutcome(line)
		require.NoError(t, err)
		got = append(got, outcome.Index)
	}
	return got
}

func resultsWith(indexes ...int64) []gpumux.Result {
	var all []gpumux.Result
	for _, i := range indexes {
		all = append(all, gpumux.Result{Index: i, Value: []byte("1")})
	}
	return all
}

func TestTail_InOrderUpToTheFirstGap(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		tail := folderOf(t, s, "m.parts").Tail(false)
		require.Empty(t, taken(t, tail), "the folder is not there yet")
		writePart(t, s, "m.parts", resultsWith(10, 11)...)
		require.Empty(t, taken(t, tail))
		growing := folderOf(t, s, "m.parts").Append()
		grow := func(indexes ...int64) {
			for _, r := range resultsWith(indexes...) {
				require.NoError(t, growing.Add(r))
			}
			require.NoError(t, growing.Flush(t.Context()))
		}
		grow(0, 1, 3)
		require.Equal(t, []int64{0, 1}, taken(t, tail))
		require.Empty(t, taken(t, tail))
		grow(2, 4, 5)
		require.Equal(t, []int64{2, 3, 4, 5}, taken(t, tail))
		grow(9, 8, 7, 6)
		require.Equal(t, []int64{6, 7, 8, 9, 10, 11}, taken(t, tail))
		writePart(t, s, "m.parts", resultsWith(5, 12, 13)...) // from another worker, with one result that is there already
		require.Equal(t, []int64{12, 13}, taken(t, tail))
		require.EqualValues(t, 14, tail.Count())
	})
}

// Several writers add results in any order to growing parts. The tail hands out every
// index once.
func TestTail_EachIndexOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		const n = 500
		ordered := folderOf(t, s, "p").Tail(false)
		unordered := folderOf(t, s, "p").Tail(true)
		var writers []*Appender
		for range 3 {
			a := folderOf(t, s, "p").Append()
			writers = append(writers, a)
		}
		var inOrder, all []int64
		left := rand.Perm(n)
		for len(left) > 0 {
			a := writers[rand.IntN(len(writers))]
			some := left[:min(len(left), 1+rand.IntN(40))]
			left = left[len(some):]
			for _, i := range some {
				require.NoError(t, a.Add(value(int64(i), "1")))
				require.NoError(t, a.Add(value(rand.Int64N(int64(i)+1), "1")), "some come twice")
			}
			require.NoError(t, a.Flush(t.Context()))
			inOrder = append(inOrder, taken(t, ordered)...)
			all = append(all, taken(t, unordered)...)
		}
		require.Len(t, inOrder, n)
		require.True(t, slices.IsSorted(inOrder))
		slices.Sort(all)
		require.Equal(t, inOrder, all)
		require.Empty(t, taken(t, ordered))
		require.Len(t, unordered.taken, 1)
	})
}

// The tail does not read a finished part again. Of the others it reads only those that
// grew.
func TestTail_ReadsWhatIsNew(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	full := folderOf(t, s, "p").Append()
	for i := range int64(fullItems) {
		require.NoError(t, full.Add(value(i, "1")))
	}
	require.NoError(t, full.Flush(t.Context()))
	growing := writePart(t, s, "p", resultsWith(fullItems, fullItems+1)...)
	for _, unordered := range []bool{false, true} {
		tail := folderOf(t, s, "p").Tail(unordered)
		require.Len(t, taken(t, tail), fullItems+2)
		server.Requests()
		require.Empty(t, taken(t, tail))
		require.Equal(t, []string{"GET /bucket/ ", "GET /bucket/" + growing.key("p") + " bytes=0-159"},
			func() (log []string) {
				for _, request := range server.Requests() {
					if request == "GET /bucket/" || request == "GET /bucket" {
						request = "GET /bucket/ "
					}
					log = append(log, request)
				}
				return log
			}(), "a list and the head of the part that may grow")
	}
}

func TestTail_GoesOnBehindTheLastLineThatWasTaken(t *testing.T) {
	s, err := Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer s.Close()
	writePart(t, s, "p", resultsWith(0, 1, 2)...)
	for _, unordered := range []bool{false, true} {
		tail := folderOf(t, s, "p").Tail(unordered)
		for range tail.Lines(t.Context(), nil) {
			break
		}
		require.Equal(t, []int64{1, 2}, taken(t, tail))
	}
}
