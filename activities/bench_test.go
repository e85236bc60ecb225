package activities

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
)

// echo is a Runner that gives each item back at once, as if task processes cost nothing.
type echo struct{}

func (echo) Run(_ context.Context, call Call, work calls.Work) error {
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		work.Done(Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

// BenchmarkMap_TrivialItems measures what gpumux's Go code costs per item, without task
// processes and Temporal: reading the item, booking and storing its result, merging the
// parts.
func BenchmarkMap_TrivialItems(b *testing.B) {
	const n, chunk = 1_000_000, 50_000
	var lines strings.Builder
	for i := range n {
		fmt.Fprintln(&lines, i)
	}
	spooled, err := items.SpoolReader(strings.NewReader(lines.String()), "items", items.JSONLines)
	require.NoError(b, err)
	s, err := store.Open(b.Context(), "file://"+b.TempDir())
	require.NoError(b, err)
	defer s.Close()
	source, err := s.Sources.Put(b.Context(), spooled)
	require.NoError(b, err)
	for name, input := range map[string]contract.Chunk{"Source": {Source: &source}, "Range": {Range: &gpumux.Range{End: n}}} {
		b.Run(name, func(b *testing.B) {
			round := 0
			before := processorTime(b)
			for b.Loop() {
				round++
				var suite testsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				pool := &Pool{Runner: echo{}, Store: s, Recorders: record.New(s), Worker: "w", Slots: func() int { return 1 }}
				env.RegisterActivityWithOptions(checked(pool.runChunk), activity.RegisterOptions{Name: "chunk"})
				c := input
				c.Parts = fmt.Sprintf("maps/%s-%d/parts", name, round)
				for start := int64(0); start < n; start += chunk {
					c.Work = contract.Work{Runs: contract.Runs{span(start, start+chunk)}}
					value, err := env.ExecuteActivity("chunk", c)
					require.NoError(b, err)
					var result contract.ChunkResult
					require.NoError(b, value.Get(&result))
					require.EqualValues(b, chunk, result.Succeeded)
				}
				merged, err := s.Merge(b.Context(), contract.MergeInput{Parts: c.Parts, Output: strings.TrimSuffix(c.Parts, "parts") + "results.jsonl", Items: n})
				require.NoError(b, err)
				require.EqualValues(b, n, merged.Succeeded)
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N*n), "cpu-ns/item")
		})
	}
}

// processorTime is the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
