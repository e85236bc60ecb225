package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestReduce_OfEveryKindOfMap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	reduce := func(in gpumux.MapInput) gpumux.Summary {
		t.Helper()
		in.Ladder = []string{"cpu"}
		sum, err := s.run(in)
		require.NoError(t, err)
		return sum
	}
	for name, in := range map[string]gpumux.MapInput{
		"inline": {Range: &gpumux.Range{End: 100}},
		"store":  {Range: &gpumux.Range{End: 100}, Output: "maps/100/results.jsonl"},
		"large":  {Range: &gpumux.Range{End: 9000}},
	} {
		t.Run(name, func(t *testing.T) {
			n := int(in.Range.End)
			in.Task, in.Reduce = "echo", "join"
			sum := reduce(in)
			require.Equal(t, strconv.Itoa(n*(n-1)/2), string(sum.Reduced))
			require.Equal(t, name != "large", sum.Results != nil)
			if in.Output != "" { // its items are done already
				sum = reduce(in)
				require.Equal(t, strconv.Itoa(n*(n-1)/2), string(sum.Reduced))
				require.Zero(t, sum.Chunks)
				in.Output = "maps/half/results.jsonl"
			}
			if name == "large" {
				return
			}
			in.Task = "half"
			sum = reduce(in)
			require.Equal(t, fmt.Sprintf("%d.0", n/2*(n/2-1)/2), string(sum.Reduced))
			require.EqualValues(t, n/2, sum.Failed, "failed items are left out")
			in.Task = "text"
			if in.Output != "" {
				in.Output = "maps/text/results.jsonl"
			}
			sum = reduce(in)
			var text, want string
			for i := range n {
				want += fmt.Sprintf("%d ", i)
			}
			require.NoError(t, json.Unmarshal(sum.Reduced, &text), "%v", sum.ReduceFault)
			require.Equal(t, want, text, "in order of the items")
		})
	}
	sum := reduce(gpumux.MapInput{Task: "text", Range: &gpumux.Range{End: 5}, Reduce: "odd_pair"})
	require.Contains(t, sum.ReduceFault.Message, "of items 0 to 0 with items 1 to 1: not these")
	require.Len(t, sum.Results, 5, "the items are done all the same")
	sum = reduce(gpumux.MapInput{Task: "echo", Range: &gpumux.Range{}, Reduce: "join"})
	require.Equal(t, "null", string(sum.Reduced))
	before := len(s.seen())
	_, err := s.run(gpumux.MapInput{Task: "brief", Range: &gpumux.Range{End: 5}, Reduce: "jion", Ladder: []string{"cpu"}})
	require.ErrorContains(t, err, "join", "a reduce that nobody knows is found out before any item runs")
	require.Len(t, s.seen(), before)
}
