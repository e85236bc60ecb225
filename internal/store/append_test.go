package store

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// Results that come one by one make few objects.
func TestAppender_ManySmallFlushesLeaveFewObjects(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		a := folderOf(t, s, "p").Append()
		const flushes, each = 200, 50
		for i, at := range rand.Perm(flushes * each) {
			require.NoError(t, a.Add(value(int64(at), fmt.Sprint(at))))
			if i%each == each-1 {
				require.NoError(t, a.Flush(t.Context()))
				require.NoError(t, a.Flush(t.Context()), "nothing to do")
			}
		}
		names, err := folderOf(t, s, "p").names(t.Context())
		require.NoError(t, err)
		require.Len(t, names, flushes*each/fullItems+1)
		seen := map[int64]bool{}
		for number := range names {
			key := partName{a.name.writer, number}.key("p")
			h, err := readHead(t, s, key)
			require.NoError(t, err)
			require.Equal(t, number < len(names)-1, h.Full)
			last := int64(-1)
			for _, r := range resultsOf(t, s, key) {
				require.Greater(t, r.Index, last, "in order of index")
				last = r.Index
				require.Equal(t, fmt.Sprint(r.Index), string(r.Value))
				require.False(t, seen[r.Index])
				seen[r.Index] = true
			}
			require.Equal(t, last, h.Last)
		}
		require.Len(t, seen, flushes*each)
	})
}

func TestAppender_OfTwoResultsTheFirstCounts(t *testing.T) {
	s := open(t, "mem://")
	a := folderOf(t, s, "p").Append()
	for _, text := range []string{"1", "2"} { // in one write
		require.NoError(t, a.Add(value(7, text)))
	}
	require.NoError(t, a.Add(value(3, "1")))
	require.NoError(t, a.Flush(t.Context()))
	for _, index := range []int64{3, 7, 5} { // and in the next
		require.NoError(t, a.Add(value(index, "3")))
	}
	require.NoError(t, a.Flush(t.Context()))
	require.Equal(t, []gpumux.Result{value(3, "1"), value(5, "3"), value(7, "1")}, resultsOf(t, s, a.name.key("p")))
}

// While the store takes nothing, stored results stay. Afterwards it gets all that came
// meanwhile.
func TestAppender_AnErrorKeepsEverything(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	a := folderOf(t, s, "p").Append()
	first := a.At()
	require.NoError(t, a.Add(value(0, "0")))
	require.NoError(t, a.Flush(t.Context()))
	var refused atomic.Int64
	server.Trouble(func(*http.Request) int { refused.Add(1); return http.StatusForbidden })
	for i := int64(1); i < 3*fullItems; i++ {
		require.NoError(t, a.Add(value(i, fmt.Sprint(i))))
		if i%fullItems == 0 {
			require.Error(t, a.Flush(t.Context()))
			require.Equal(t, first, a.At())
		}
	}
	require.Positive(t, refused.Load())
	require.Len(t, resultsOf(t, s, a.name.key("p")), 1, "what was stored stays")
	require.NoError(t, a.Add(value(1, `"later"`)))
	server.Trouble(nil)
	require.NoError(t, a.Flush(t.Context()))
	found, damaged := since(t, s, "p", first)
	require.Zero(t, damaged)
	require.Len(t, found, 3*fullItems)
	for _, r := range resultsOf(t, s, partName{first.Writer, 0}.key("p")) {
		require.Equal(t, fmt.Sprint(r.Index), string(r.Value), "in the order in which they came")
	}
}

// When a write fails in the middle, the Appender keeps the rest and writes it later.
func TestAppender_AnErrorBetweenParts(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	a := folderOf(t, s, "p").Append()
	large := `"` + strings.Repeat("x", fullBytes) + `"`
	const n = 40
	for i := range int64(n) {
		require.NoError(t, a.Add(value(i, large)))
	}
	writes := 0
	server.Trouble(func(*http.Request) int {
		if writes++; writes > 2 {
			return http.StatusForbidden
		}
		return 0
	})
	require.Error(t, a.Flush(t.Context()))
	require.Equal(t, 2, a.At().Number)
	server.Trouble(nil)
	require.NoError(t, a.Flush(t.Context()))
	found, _ := since(t, s, "p", Position{Writer: a.name.writer})
	require.Len(t, found, n)
}

func TestAppender_ResultsAboveTheSizes(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		a := folderOf(t, s, "p").Append()
		want := map[int64]string{}
		for i, size := range []int{fullBytes + 1, 10, maxPart + 1, 10, maxPart / 2, maxPart/2 + 1, fullBytes / 2, fullBytes / 2} {
			text := `"` + strings.Repeat(string(rune('a'+i)), size) + `"`
			want[int64(i)] = text
			require.NoError(t, a.Add(value(int64(i), text)))
		}
		require.NoError(t, a.Flush(t.Context()))
		names, err := folderOf(t, s, "p").names(t.Context())
		require.NoError(t, err)
		got := map[int64]string{}
		for _, name := range names {
			all := resultsOf(t, s, name.key("p"))
			h, err := readHead(t, s, name.key("p"))
			require.NoError(t, err)
			require.True(t, len(all) == 1 || h.Bytes <= maxPart, "only a single result may be larger")
			for _, r := range all {
				got[r.Index] = string(r.Value)
			}
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.True(t, want[i] == got[i], i)
		}
	})
}

// After damage on disk, the next write makes the part whole again.
func TestAppender_NextWriteReplacesADamagedPart(t *testing.T) {
	s := open(t, "file://"+t.TempDir())
	a := folderOf(t, s, "p").Append()
	require.NoError(t, a.Add(value(0, "1")))
	require.NoError(t, a.Flush(t.Context()))
	put(t, s, a.name.key("p"), "broken")
	found, err := s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	require.Len(t, found.Damaged, 1)
	require.NoError(t, a.Add(value(1, "1")))
	require.NoError(t, a.Flush(t.Context()))
	found, err = s.FindParts(t.Context(), nine)
	require.NoError(t, err)
	require.Empty(t, found.Damaged)
	require.EqualValues(t, 2, found.Stages[0].Succeeded)
}
