package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/workers/config"
)

// envTask makes the test binary a task process that gives items back as they are.
const envTask = "E2E_TASK"

func init() {
	if os.Getenv(envTask) == "" {
		return
	}
	err := wiretest.Serve(func(item json.RawMessage) (json.RawMessage, error) { return item, nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// BenchmarkMap_TrivialItems is a whole map over items that do nothing, in task processes
// that cost as little as can be: what grows with the items is gpumux's own.
func BenchmarkMap_TrivialItems(b *testing.B) {
	self, err := os.Executable()
	require.NoError(b, err)
	s := newSite(b)
	c := s.config("cpu", 2)
	c.Tasks = map[string]config.Task{"echo": {Program: []string{self}, Env: map[string]string{envTask: "1"}}}
	s.serve(c)
	for _, n := range []int64{1, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				sum, err := s.run(gpumux.MapInput{Task: "echo", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"},
					Output: fmt.Sprintf("maps/%d-%d-%d/results.jsonl", n, b.N, i)})
				require.NoError(b, err)
				require.Equal(b, n, sum.Succeeded)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*n), "ns/item")
		})
	}
}
