package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// Whatever ends a map, its fault says what becomes of the items that are done, and each
// thing once.
func TestEnded_SaysWhatIsKept(t *testing.T) {
	const stored, none, history = "the same map started again runs only the rest", "the map named no output", "results of a map inside a workflow are not stored"
	kinds := map[string]struct {
		f    any
		args []any
		want string
	}{
		"a map with an output":    {gpumux.MapWorkflow, []any{gpumux.MapInput{Range: &gpumux.Range{End: 20}, Output: "o/r.jsonl"}}, stored},
		"a map without an output": {gpumux.MapWorkflow, []any{gpumux.MapInput{Range: &gpumux.Range{End: 20}}}, none},
		"a child":                 {workflows.MapSource, []any{gpumux.MapInput{Range: &gpumux.Range{End: 20}}}, none},
		"a child with an output":  {workflows.MapSource, []any{gpumux.MapInput{Range: &gpumux.Range{End: 20}, Output: "o/r.jsonl"}}, stored},
		"a map in a workflow":     {square, []any{20, gpumux.MapInput{}}, history},
	}
	reasons := map[string]struct {
		limit func(*gpumux.MapInput)
		odd   func(contract.Chunk, string) (*contract.ChunkResult, error)
		kind  gpumux.FaultKind
		also  string
	}{
		"new code": {func(*gpumux.MapInput) {}, func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
			if start(c) < 10 {
				return nil, nil
			}
			gone := gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Slot: "cpu/0", Device: "CPU", Edition: "fedcba", Message: "the code is another", Hint: "put it back"}
			return nil, temporal.NewApplicationErrorWithOptions(gone.Error(), string(gone.Kind), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{gone}})
		}, gpumux.FaultBadInput, "the code is another; put it back; "},
		"failures": {func(in *gpumux.MapInput) { in.MaxFailures = "3" }, func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
			return failing(c), nil
		}, gpumux.FaultCrash, "mostly crash; such as item "},
		"its time": {func(in *gpumux.MapInput) {
			in.MapTimeout, in.Attempts, in.Backoff = gpumux.Duration(time.Hour), 9, gpumux.Duration(24*time.Hour)
		}, func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
			r, _ := raises(c, "")
			for i := start(c); i < end(c) && c.Parts == ""; i++ {
				r.Results = append(r.Results, gpumux.Result{Index: i, Value: []byte("1")})
			}
			return r, nil
		}, gpumux.FaultTimeout, "items are done; give it a longer mapTimeout; "},
	}
	for name, k := range kinds {
		for why, r := range reasons {
			t.Run(name+", "+why, func(t *testing.T) {
				t.Parallel()
				last := len(k.args) - 1
				in := k.args[last].(gpumux.MapInput)
				in.Task, in.Chunk, in.Window = "square", 5, 1
				r.limit(&in)
				err := run(t, &worker{odd: r.odd}, k.f, append(k.args[:last:last], in)...).GetWorkflowError()
				fault := workflows.FaultOf(err)
				require.Equal(t, r.kind, fault.Kind)
				require.True(t, strings.HasSuffix(fault.Hint, k.want) || strings.Contains(fault.Hint, k.want+","), fault.Hint)
				printed := err.Error()
				for _, part := range []string{r.also, k.want, "(type: " + string(r.kind) + ", retryable: false)"} {
					require.Equal(t, 1, strings.Count(printed, part), "%s in %s", part, printed)
				}
				require.NotContains(t, printed, "retryable: true")
			})
		}
	}
}
