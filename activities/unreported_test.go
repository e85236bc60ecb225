package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/store"
)

// The server knows nothing of what an attempt has finished since it went silent. The next
// attempt, on another worker, runs only the rest.
func TestRunChunk_ResultsThatTheServerDoesNotKnow(t *testing.T) {
	for name, parts := range map[string]string{"inline": "", "with a folder": "m/parts"} {
		t.Run(name, func(t *testing.T) {
			runner := &dying{after: 5}
			l := newLab(t, runner)
			// In this environment each attempt is an activity of its own.
			first := ""
			l.env.RegisterActivityWithOptions(func(ctx context.Context, chunk contract.Chunk) (contract.ChunkResult, error) {
				if text, err := l.store.Objects.ReadAll(ctx, first); err == nil {
					require.NoError(t, l.store.Objects.Put(ctx, unreportedOf(ctx), text, objects.Creation{}))
				}
				first = unreportedOf(ctx)
				return l.pool.RunChunk(ctx, chunk)
			}, activity.RegisterOptions{Name: "attempt"})
			l.pool.Doubt = func() bool { return true }
			chunk := contract.Chunk{Range: &gpumux.Range{End: 8}, Work: contract.Whole(8), Parts: parts}
			_, err := l.env.ExecuteActivity("attempt", chunk)
			require.ErrorContains(t, err, "gone")
			if parts != "" {
				stream, written, err := l.pool.Recorders.Join(parts, "")
				require.NoError(t, err)
				stream.Leave()
				l.env.SetHeartbeatDetails(memo{Written: []store.Position{written}})
				l.pool.Recorders = record.New(l.store)
			}
			done := len(runner.ran)
			require.GreaterOrEqual(t, done, 5)
			runner.after, runner.ran = 0, nil
			encoded, err := l.env.ExecuteActivity("attempt", chunk)
			require.NoError(t, err)
			var result contract.ChunkResult
			require.NoError(t, encoded.Get(&result))
			require.Equal(t, []int64{5, 6, 7}[done-5:], runner.ran)
			require.EqualValues(t, 8, result.Succeeded)
			if parts == "" {
				require.Len(t, result.Results, 8)
			} else {
				runs, err := l.store.Runs(t.Context(), parts)
				require.NoError(t, err)
				require.Equal(t, contract.Whole(8).Runs, runs)
			}
		})
	}
}
