package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

func TestPick_RandomRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		const n = 3000
		want, tidy, _ := numbered(n)
		src, err := s.Sources.Put(t.Context(), spool(t, tidy, JSONLines))
		require.NoError(t, err)
		for range 20 {
			runs, set := someItems(n)
			var kept []json.RawMessage
			var order []int64
			require.NoError(t, s.Sources.Pick(t.Context(), src, runs, func(index int64, item json.RawMessage) bool {
				kept, order = append(kept, item), append(order, index)
				return true
			}))
			require.Len(t, order, len(set))
			at := 0
			for _, run := range runs {
				for i := run.Start; i < run.End; i++ {
					require.Equal(t, i, order[at])
					require.Equal(t, want[i], string(kept[at]))
					at++
				}
			}
		}
	})
}

// apart is a source in which every 100th item is far from the others.
func apart(t *testing.T, s *store) (src contract.Source, runs contract.Runs) {
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "\"%d%s\"\n", i, strings.Repeat("x", 8<<10))
	}
	src, err := s.Sources.Put(t.Context(), spool(t, text.String(), JSONLines))
	require.NoError(t, err)
	for at := int64(5); at < 2000; at += 100 {
		runs = append(runs, contract.Span{Start: at, End: at + 1 + at%30})
	}
	return src, runs
}

func TestPick_ErrorsComeOut(t *testing.T) {
	for _, s := range []*store{open(t, "file://"+t.TempDir()), open(t, s3test.New(t).URL(""))} {
		src, runs := apart(t, s)
		past := append(append(contract.Runs{}, runs...), contract.Span{Start: src.Items - 1, End: src.Items + 1})
		count := int64(0)
		err := s.Sources.Pick(t.Context(), src, past, func(int64, json.RawMessage) bool { count++; return true })
		require.ErrorContains(t, err, "are not all in")
		require.LessOrEqual(t, count, runs.Len())

		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		count = 0
		err = s.Sources.Pick(ctx, src, runs, func(int64, json.RawMessage) bool {
			if count++; count == 3 {
				cancel(enough)
			}
			return true
		})
		require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, enough), "%v", err) // a request fails with its context's cause
		require.Less(t, count, runs.Len())

		require.NoError(t, s.Objects.Delete(t.Context(), src.URL))
		err = s.Sources.Pick(t.Context(), src, runs, func(int64, json.RawMessage) bool { t.Error("an item of what is gone"); return true })
		require.ErrorContains(t, err, "file does not exist")
	}
}
