package contract_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

// randomRuns are some of n items, as runs and as a plain list.
func randomRuns(n int64) (runs contract.Runs, plain []int64) {
	share := rand.Float64()
	for i := range n {
		if rand.Float64() < share {
			runs.Add(i)
			plain = append(plain, i)
		}
	}
	return runs, plain
}

func plainOf(runs contract.Runs) (plain []int64) {
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			plain = append(plain, i)
		}
	}
	return plain
}

// tidy says that runs are sorted and neither touch nor overlap.
func tidy(t *testing.T, runs contract.Runs) {
	t.Helper()
	for i, run := range runs {
		require.Less(t, run.Start, run.End)
		if i > 0 {
			require.Less(t, runs[i-1].End, run.Start)
		}
	}
}

func TestRuns_AsAPlainList(t *testing.T) {
	for range 300 {
		runs, plain := randomRuns(rand.Int64N(80))
		tidy(t, runs)
		require.EqualValues(t, len(plain), runs.Len())
		require.Equal(t, plain, plainOf(runs))

		other, more := randomRuns(rand.Int64N(80))
		union := runs.Union(other)
		tidy(t, union)
		all := append(slices.Clone(plain), more...)
		slices.Sort(all)
		all = slices.Compact(all)
		require.Equal(t, append([]int64{}, all...), append([]int64{}, plainOf(union)...))
		require.Equal(t, plain, plainOf(runs), "the runs themselves stay")
		require.Equal(t, more, plainOf(other))

		without := runs.Without(other)
		tidy(t, without)
		left := slices.DeleteFunc(slices.Clone(plain), func(i int64) bool { return slices.Contains(more, i) })
		require.Equal(t, append([]int64{}, left...), append([]int64{}, plainOf(without)...))

		n := rand.Int64N(90)
		cut := min(n, int64(len(plain)))
		require.Equal(t, append([]int64{}, plain[cut:]...), append([]int64{}, plainOf(runs.After(n))...))
		require.Equal(t, plain, plainOf(runs))

		rest, limit := slices.Clone(runs), 1+rand.IntN(10)
		taken := rest.Take(n, limit)
		tidy(t, taken)
		tidy(t, rest)
		require.LessOrEqual(t, len(taken), limit)
		require.LessOrEqual(t, taken.Len(), n)
		require.Equal(t, plain, append(plainOf(taken), plainOf(rest)...))
		if len(taken) < limit {
			require.Equal(t, cut, taken.Len())
		}
	}
}

func TestRuns_JSONRoundTrip(t *testing.T) {
	for range 300 {
		runs, _ := randomRuns(rand.Int64N(200))
		text, err := json.Marshal(runs)
		require.NoError(t, err)
		var back contract.Runs
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, append(contract.Runs{}, runs...), back)
	}
	text, err := json.Marshal(contract.Runs{{Start: 5, End: 8}, {Start: 10, End: 11}})
	require.NoError(t, err)
	require.JSONEq(t, "[5,3,2,1]", string(text))
	const largest = 1<<63 - 1
	var far contract.Runs
	require.NoError(t, json.Unmarshal([]byte("[9223372036854775806,1]"), &far))
	require.Equal(t, contract.Runs{{Start: largest - 1, End: largest}}, far)
}

func TestRuns_RefusesWhatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"[5]":                         "the last count is missing",
		"[5,3,2]":                     "the last count is missing",
		"[-1,3]":                      "-1 and 3 at position 0 are none",
		"[0,0]":                       "0 and 0 at position 0",
		"[1,-1]":                      "1 and -1 at position 0",
		"[0,3,0,1]":                   "0 and 1 at position 2",
		"[0,3,-1,1]":                  "-1 and 1 at position 2",
		"[9223372036854775807,1]":     "at position 0",
		"[1,9223372036854775807]":     "at position 0",
		"[0,1,9223372036854775807,1]": "at position 2",
		"[9223372036854775806,1,1,1]": "at position 2",
		"[9223372036854775808,1]":     "items are a list of numbers",
		"[1.5,1]":                     "items are a list of numbers",
		`["1",1]`:                     "items are a list of numbers",
		`{"start":0,"end":1}`:         "items are a list of numbers",
		`[{"start":0,"end":1}]`:       "items are a list of numbers",
		`"0-5"`:                       "items are a list of numbers",
	} {
		runs := contract.Runs{{Start: 1, End: 2}}
		require.ErrorContains(t, json.Unmarshal([]byte(text), &runs), want, text)
		require.Equal(t, contract.Runs{{Start: 1, End: 2}}, runs, "nothing is taken over")
	}
}

func FuzzRuns(f *testing.F) {
	for _, text := range []string{"[]", "[0,1]", "[5,3,2,1]", "[0,0]", "null", "[9223372036854775806,1]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var runs contract.Runs
		if json.Unmarshal(text, &runs) != nil {
			return
		}
		tidy(t, runs)
		again, err := json.Marshal(runs)
		require.NoError(t, err)
		var back contract.Runs
		require.NoError(t, json.Unmarshal(again, &back))
		require.Equal(t, append(contract.Runs{}, runs...), append(contract.Runs{}, back...))
	})
}

// Work is cut into chunks without a gap, whether it travels as runs or as a list.
func TestWork_Take(t *testing.T) {
	for range 200 {
		runs, plain := randomRuns(rand.Int64N(5000))
		work := contract.Work{Runs: slices.Clone(runs)}
		list := contract.Work{List: &contract.Source{Items: runs.Len()}, End: runs.Len()}
		if rand.IntN(2) == 0 {
			exact := work
			n := rand.Int64N(5000)
			after := work.After(n)
			cut := exact.Cut(n)
			require.EqualValues(t, min(n, int64(len(plain))), cut.Len())
			require.Equal(t, after.Len(), exact.Len())
			work = contract.Work{Runs: slices.Clone(runs)}
		}
		var got []int64
		at := int64(0)
		for work.Len() > 0 {
			size := 1 + rand.Int64N(2000)
			chunk := work.Take(size)
			require.Positive(t, chunk.Len())
			require.LessOrEqual(t, chunk.Len(), size)
			require.LessOrEqual(t, len(chunk.Runs), 1024)
			got = append(got, plainOf(chunk.Runs)...)

			piece := list.Take(chunk.Len())
			require.Equal(t, at, piece.Start)
			at += chunk.Len()
			require.Equal(t, at, piece.End)
		}
		require.Equal(t, plain, got)
		require.Zero(t, list.Len())
		require.Zero(t, list.Take(5).Len())
	}
	require.Zero(t, contract.Whole(0).Len())
	require.EqualValues(t, 7, contract.Whole(7).Len())
}
