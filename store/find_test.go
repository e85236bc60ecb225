package store

import (
	"strings"
	"testing"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store/s3test"
	"github.com/stretchr/testify/require"
)

func TestFind_CountsEachItemOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		found, err := s.Find(ctx, "none")
		require.NoError(t, err)
		require.Equal(t, gpumux.Found{}, found)
		require.NoError(t, s.WritePart(ctx, "p", 0, 10, 0, []gpumux.Result{value(0, "1"), fault(1, gpumux.Crash), value(9, "1")}))
		require.NoError(t, s.WritePart(ctx, "p", 1, 3, 0, []gpumux.Result{value(1, "1"), fault(2, gpumux.TaskError)}))
		found, err = s.Find(ctx, "p")
		require.NoError(t, err)
		require.Equal(t, []gpumux.Span{{Start: 0, End: 3}, {Start: 9, End: 10}}, found.Spans)
		require.EqualValues(t, 2, found.Succeeded)
		require.EqualValues(t, 2, found.Failed)
		require.Equal(t, map[gpumux.Kind]int64{gpumux.Crash: 1, gpumux.TaskError: 1}, found.Faults)
	})
}

func TestSource_ThatWasPutIsNotReadAgain(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""), Options{})
	for _, text := range []string{"", "1\n2\n", strings.Repeat("12345\n", 10_000)} {
		src, err := s.PutSource(t.Context(), spool(t, text, JSONLines))
		require.NoError(t, err)
		server.Requests()
		known, err := s.Source(t.Context(), src.URL, "maps/m/source.index")
		require.NoError(t, err)
		require.Equal(t, src, known)
		for _, request := range server.Requests() {
			require.Contains(t, request, ".index")
			require.NotContains(t, request, "PUT")
		}
	}
	put(t, s, "in/a.jsonl", "1\n2\n")
	src, err := s.Source(t.Context(), "in/a.jsonl", "maps/m/source.index")
	require.NoError(t, err)
	require.Equal(t, gpumux.Source{URL: s.Locate("in/a.jsonl"), Index: "maps/m/source.index", Items: 2, Bytes: 4}, src)
	put(t, s, "sources/mine.jsonl", "1\n")
	src, err = s.Source(t.Context(), "sources/mine.jsonl", "maps/n/source.index")
	require.NoError(t, err)
	require.Equal(t, "maps/n/source.index", src.Index)
}
