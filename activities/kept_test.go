package activities

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// stalling hangs in an item until its results so far were kept, and is then gone without
// a word, as with its worker. Later calls run to their end.
type stalling struct {
	dying
	at    int64
	await func(kept int)
}

func (s *stalling) Run(ctx context.Context, call Call, work calls.Work) error {
	if s.at == 0 {
		return s.dying.Run(ctx, call, work)
	}
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		if item.Index == s.at {
			s.await(int(s.at))
			s.at = 0
			panic("the worker is lost")
		}
		s.ran = append(s.ran, item.Index)
		work.Done(Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

// inWorkflow runs a chunk as a workflow's activity, which has a second attempt.
func (l *lab) inWorkflow(chunk contract.Chunk, heartbeat time.Duration, heard func(memo)) (result contract.ChunkResult) {
	l.t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var m memo
		if heard != nil && details.Get(&m) == nil {
			heard(m)
		}
	})
	env.ExecuteWorkflow(func(ctx workflow.Context) (result contract.ChunkResult, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour, HeartbeatTimeout: heartbeat,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}})
		err = workflow.ExecuteActivity(ctx, "chunk", chunk).Get(ctx, &result)
		return result, err
	})
	require.NoError(l.t, env.GetWorkflowError())
	require.NoError(l.t, env.GetWorkflowResult(&result))
	return result
}

// What a chunk without a folder has finished is in the store while it runs: the attempt
// after one that was lost runs only the rest. Then nothing is left there.
func TestRunChunk_KeepsResultsThatTravelInline(t *testing.T) {
	for how, attempts := range map[string]Runner{"lost": &stalling{at: 5}, "failed": &dying{after: 5}} {
		t.Run(how, func(t *testing.T) {
			l := newLab(t, attempts)
			kept := func() (n int) {
				for o, err := range l.store.Objects.Objects(t.Context(), "maps/unreported") {
					require.NoError(t, err)
					text, err := l.store.Objects.ReadAll(t.Context(), o.Key, nil)
					require.NoError(t, err)
					var results []gpumux.Result
					require.NoError(t, json.Unmarshal(text, &results))
					n += len(results)
				}
				return n
			}
			if r, ok := attempts.(*stalling); ok {
				r.await = func(n int) {
					rig.Wait(t, func() bool { return kept() == n }, time.Minute, time.Millisecond)
				}
			}
			result := l.inWorkflow(contract.Chunk{Range: &gpumux.Range{End: 8}, Work: contract.Whole(8)}, 0, nil)
			require.EqualValues(t, 8, result.Succeeded)
			require.Len(t, result.Results, 8)
			require.Zero(t, kept())
			var ran []int64
			switch r := attempts.(type) {
			case *stalling:
				ran = r.ran
			case *dying:
				ran = r.ran
			}
			require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7}, ran, "each once")
		})
	}
}
