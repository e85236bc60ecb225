package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// Parts may have any shape. Every index comes once, from the part that begins first. If
// two parts begin alike, the first by name counts.
func TestMerge_RandomParts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for round := range 5 {
			folder := fmt.Sprintf("maps/%d.parts", round)
			const items = 500
			var parts []part
			held := map[partName]map[int64]bool{}
			for len(parts) < 60 {
				first, last := rand.Int64N(items), int64(0)
				a := folderOf(t, s, folder).Append()
				indexes := map[int64]bool{}
				for i := first; i < min(items, first+1+rand.Int64N(60)); i++ {
					if i == first || rand.IntN(3) > 0 {
						require.NoError(t, a.Add(value(i, `"`+a.name.writer+`"`)))
						indexes[i], last = true, i
					}
				}
				require.NoError(t, a.Flush(ctx))
				parts = append(parts, part{a.name, partHead{First: first, Last: last}})
				held[a.name] = indexes
			}
			slices.SortFunc(parts, part.compare)
			owner := make([]string, items)
			var have contract.Runs
			missing := int64(-1)
			for i := range int64(items) {
				at := slices.IndexFunc(parts, func(p part) bool { return held[p.partName][i] })
				if at >= 0 {
					owner[i] = parts[at].writer
					have.Add(i)
				} else if missing < 0 {
					missing = i
				}
			}
			runs, err := s.Runs(ctx, folder)
			require.NoError(t, err)
			require.Equal(t, have, runs)

			in := contract.MergeInput{Parts: folder, Output: folder + ".out", Items: items}
			if missing >= 0 {
				merged, err := s.Merge(ctx, in)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("item %d has no result in %s", missing, folder), merged.Missing)
				var fill []gpumux.Result
				for i, writer := range owner {
					if writer == "" {
						fill = append(fill, value(int64(i), `""`))
					}
				}
				require.NoError(t, s.WritePart(ctx, folder, fill))
			}
			merged, err := s.Merge(ctx, in)
			require.NoError(t, err)
			require.EqualValues(t, items, merged.Succeeded)
			next := int64(0)
			for line, err := range s.Lines(ctx, in.Output) {
				require.NoError(t, err)
				r, err := results.Parse(line)
				require.NoError(t, err)
				require.Equal(t, next, r.Index)
				require.Equal(t, `"`+owner[r.Index]+`"`, string(r.Value), r.Index)
				next++
			}
			require.EqualValues(t, items, next)
		}
	})
}

func TestMerge_WritesNothingWhenIncomplete(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		put(t, s, "out", "before")
		writePart(t, s, "p", value(0, "1"), value(2, "1"), value(4, "1"))
		for _, c := range []struct {
			items int64
			parts string
			want  string
		}{{5, "p", "item 1 has no result in p"}, {7, "none", "item 0 has no result in none"}} {
			merged, err := s.Merge(ctx, contract.MergeInput{Parts: c.parts, Output: "out", Items: c.items})
			require.NoError(t, err)
			require.Equal(t, c.want, merged.Missing)
			require.Empty(t, merged.Output)
		}
		for _, c := range []struct {
			items int64
			parts string
			want  string
		}{
			{1, "p", s.Objects.Locate("p") + " holds item 2, but there are only 1"},
			{-1, "p", "-1 items are less than none"},
			{1, "../p", "is not a key"},
		} {
			_, err := s.Merge(ctx, contract.MergeInput{Parts: c.parts, Output: "out", Items: c.items})
			require.ErrorContains(t, err, c.want)
		}
		_, err := s.Merge(ctx, contract.MergeInput{Parts: "p", Output: "file:///etc/out", Items: 1})
		require.ErrorContains(t, err, "lies outside the store")
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.Merge(canceled, contract.MergeInput{Parts: "p", Output: "out", Items: 1})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "before", get(t, s, "out"))

		merged, err := s.Merge(ctx, contract.MergeInput{Parts: "none", Output: "out", Items: 0})
		require.NoError(t, err)
		require.Zero(t, merged.Bytes)
		require.Empty(t, merged.Missing)
		require.Empty(t, get(t, s, "out"))
	})
}

func TestMerge_ManyPartsOverS3WithBrokenConnections(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""))
	const chunks, size = 1100, 20
	for i := range int64(chunks) {
		var results []gpumux.Result
		for j := range int64(size) {
			results = append(results, value(i*size+j, `"`+strings.Repeat("x", 50)+`"`))
		}
		require.NoError(t, s.WritePart(t.Context(), "p", results))
	}
	server.Truncate(50)
	merged, err := s.Merge(t.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: chunks * size})
	require.NoError(t, err)
	require.EqualValues(t, chunks*size, merged.Succeeded)
	require.Equal(t, chunks*size, strings.Count(get(t, s, "out"), "\n"))
}

func TestLines_OfNoFile(t *testing.T) {
	for _, err := range open(t, "mem://").Lines(t.Context(), "none") {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

func benchmarkMerge(b *testing.B, items, size int64) {
	s := open(b, "file://"+b.TempDir())
	for start := int64(0); start < items; start += size {
		var results []gpumux.Result
		for i := start; i < start+size; i++ {
			results = append(results, value(i, `{"label":"cat","score":0.9731}`))
		}
		require.NoError(b, s.WritePart(b.Context(), "p", results))
	}
	b.ResetTimer()
	for b.Loop() {
		merged, err := s.Merge(b.Context(), contract.MergeInput{Parts: "p", Output: "out", Items: items})
		require.NoError(b, err)
		require.EqualValues(b, items, merged.Succeeded)
		b.SetBytes(merged.Bytes)
	}
	b.ReportMetric(float64(items)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkMerge_PartsOf1000(b *testing.B) { benchmarkMerge(b, 2_000_000, 1000) }
