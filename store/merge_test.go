package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/store/s3test"
	"github.com/stretchr/testify/require"
)

func TestMerge_InOrderOnceEach(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		p := "maps/m/parts"
		require.NoError(t, s.WritePart(ctx, p, 4, 6, 0, []gpumux.Result{value(5, "5"), value(4, "4")}))
		require.NoError(t, s.WritePart(ctx, p, 0, 4, 0, []gpumux.Result{value(0, `"<0>"`), fault(2, gpumux.Timeout)}))
		require.NoError(t, s.WritePart(ctx, p, 0, 4, 1, []gpumux.Result{value(1, "1"), value(2, "2"), value(3, "3")}))
		put(t, s, p+"/notes.txt", "not a part")
		merged, err := s.Merge(ctx, gpumux.MergeInput{Parts: p, Output: "maps/m/results.jsonl", Items: 6}, nil)
		require.NoError(t, err)
		want := `{"index":0,"value":"<0>"}
{"index":1,"value":1}
{"index":2,"fault":{"kind":"timeout","message":"a <b> & c"}}
{"index":3,"value":3}
{"index":4,"value":4}
{"index":5,"value":5}
`
		require.Equal(t, want, get(t, s, merged.Output))
		require.Equal(t, gpumux.Merged{Items: 6, Succeeded: 5, Failed: 1, Faults: map[gpumux.Kind]int64{gpumux.Timeout: 1},
			Bytes: int64(len(want)), Output: s.Locate("maps/m/results.jsonl")}, merged)

		index := int64(0)
		for r, err := range s.Results(ctx, merged.Output) {
			require.NoError(t, err)
			require.Equal(t, index, r.Index)
			require.Equal(t, index == 2, r.Fault != nil)
			index++
		}
		require.EqualValues(t, 6, index)
	})
}

func TestMerge_RandomParts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for round := range 5 {
			folder := fmt.Sprintf("maps/%d/parts", round)
			const items = 500
			owner := make([]part, items)
			var parts []part
			for len(parts) < 60 {
				start := rand.Int64N(items)
				p := part{start, min(items, start+1+rand.Int64N(60)), 0}
				for slices.Contains(parts, p) {
					p.seq++
				}
				parts = append(parts, p)
			}
			slices.SortFunc(parts, part.compare)
			for _, p := range slices.Backward(parts) {
				var results []gpumux.Result
				for i := p.start; i < p.end; i++ {
					if rand.IntN(3) > 0 {
						results = append(results, value(i, fmt.Sprintf(`"%d-%d.%d"`, p.start, p.end, p.seq)))
						owner[i] = p
					}
				}
				if len(results) > 0 {
					require.NoError(t, s.writePart(ctx, p.key(folder), results, true))
				}
			}
			var have []gpumux.Span
			missing := int64(-1)
			for i, p := range owner {
				switch at := int64(i); {
				case p.end == 0:
					if missing < 0 {
						missing = at
					}
				case len(have) > 0 && have[len(have)-1].End == at:
					have[len(have)-1].End++
				default:
					have = append(have, gpumux.Span{Start: at, End: at + 1})
				}
			}
			spans, err := s.Spans(ctx, folder)
			require.NoError(t, err)
			require.Equal(t, have, spans)

			in := gpumux.MergeInput{Parts: folder, Output: folder + ".out", Items: items}
			if missing >= 0 {
				_, err = s.Merge(ctx, in, nil)
				require.ErrorContains(t, err, fmt.Sprintf("item %d has no result", missing))
				var fill []gpumux.Result
				for i, p := range owner {
					if p.end == 0 {
						owner[i] = part{0, items, 0}
						fill = append(fill, value(int64(i), `"0-500.0"`))
					}
				}
				require.NoError(t, s.WritePart(ctx, folder, 0, items, 0, fill))
			}
			_, err = s.Merge(ctx, in, nil)
			require.NoError(t, err)
			for r, err := range s.Results(ctx, in.Output) {
				require.NoError(t, err)
				p := owner[r.Index]
				require.Equal(t, fmt.Sprintf(`"%d-%d.%d"`, p.start, p.end, p.seq), string(r.Value), r.Index)
			}
		}
	})
}

func TestMerge_WritesNothingWhenIncomplete(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		put(t, s, "out", "before")
		require.NoError(t, s.WritePart(ctx, "p", 0, 10, 0, []gpumux.Result{value(0, "1"), value(2, "1"), value(4, "1")}))
		for _, c := range []struct {
			items int64
			parts string
			want  string
		}{
			{5, "p", "item 1 has no result; run the map again"},
			{7, "none", "item 0 has no result"},
			{1, "p", "part " + s.Locate("p/000000000000-000000000010.0000.jsonl") + " holds item 2, but there are only 1"},
			{-1, "p", "-1 items are less than none"},
			{1, "../p", "is not a key"},
		} {
			_, err := s.Merge(ctx, gpumux.MergeInput{Parts: c.parts, Output: "out", Items: c.items}, nil)
			require.ErrorContains(t, err, c.want)
		}
		_, err := s.Merge(ctx, gpumux.MergeInput{Parts: "p", Output: "file:///etc/out", Items: 1}, nil)
		require.ErrorContains(t, err, "lies outside the store")
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.Merge(canceled, gpumux.MergeInput{Parts: "p", Output: "out", Items: 1}, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "before", get(t, s, "out"))

		merged, err := s.Merge(ctx, gpumux.MergeInput{Parts: "none", Output: "out", Items: 0}, nil)
		require.NoError(t, err)
		require.Zero(t, merged.Bytes)
		require.Empty(t, get(t, s, "out"))
	})
}

func TestMerge_ManyPartsOverS3WithBrokenConnections(t *testing.T) {
	server := s3test.New(t)
	s := open(t, server.URL(""), Options{})
	const chunks, size = 1100, 20
	for i := range int64(chunks) {
		var results []gpumux.Result
		for j := range int64(size) {
			results = append(results, value(i*size+j, `"`+strings.Repeat("x", 50)+`"`))
		}
		require.NoError(t, s.WritePart(t.Context(), "p", i*size, (i+1)*size, 0, results))
	}
	server.Truncate(50)
	var beats []int64
	merged, err := s.Merge(t.Context(), gpumux.MergeInput{Parts: "p", Output: "out", Items: chunks * size}, func(items int64) {
		beats = append(beats, items)
	})
	require.NoError(t, err)
	require.EqualValues(t, chunks*size, merged.Succeeded)
	require.Equal(t, []int64{0, beatItems}, beats)
	require.Equal(t, chunks*size, strings.Count(get(t, s, "out"), "\n"))
	require.NoError(t, s.DeleteFolder(t.Context(), "p"))
	require.Equal(t, []string{"out"}, server.Keys())
}

func TestResults_SaysWhatIsWrong(t *testing.T) {
	s := open(t, "mem://", Options{})
	put(t, s, "out", `{"index":0,"value":1}`+"\nx\n")
	var last error
	count := 0
	for _, err := range s.Results(t.Context(), "out") {
		last = err
		count++
	}
	require.Equal(t, 2, count)
	require.ErrorContains(t, last, "mem:///out:2: not a result")
	for _, err := range s.Results(t.Context(), "none") {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

func benchmarkMerge(b *testing.B, items, size int64) {
	s := open(b, "file://"+b.TempDir(), Options{})
	var results []gpumux.Result
	for i := range items {
		results = append(results, value(i, `{"label":"cat","score":0.9731}`))
		if i%size == size-1 {
			start := i + 1 - size
			require.NoError(b, s.WritePart(b.Context(), "p", start, i+1, 0, results))
			results = results[:0]
		}
	}
	b.ResetTimer()
	for b.Loop() {
		merged, err := s.Merge(b.Context(), gpumux.MergeInput{Parts: "p", Output: "out", Items: items}, nil)
		require.NoError(b, err)
		b.SetBytes(merged.Bytes)
	}
	b.ReportMetric(float64(items)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkMerge_PartsOf1000(b *testing.B)  { benchmarkMerge(b, 2_000_000, 1000) }
func BenchmarkMerge_PartsOf50000(b *testing.B) { benchmarkMerge(b, 2_000_000, 50_000) }

func BenchmarkSpool_JSONLines(b *testing.B) {
	text := strings.Repeat(`{"id":12345,"text":"the quick brown fox jumps over the lazy dog","score":0.9731}`+"\n", 200_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s, err := Spool(strings.NewReader(text), SpoolOptions{Dir: b.TempDir()})
		require.NoError(b, err)
		require.NoError(b, s.Remove())
	}
}
