package activities

import (
	"context"
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
)

// mortal is a Runner with one fault, before item 5. It notes what ran, and how long calls
// would wait for a slot.
type mortal struct {
	fault    *gpumux.Fault
	ran      []int64
	patience []time.Duration
}

func (m *mortal) Run(_ context.Context, call calls.Call, work calls.Work) error {
	m.patience = append(m.patience, call.Patience)
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		if fault := m.fault; fault != nil && item.Index == 5 {
			m.fault = nil
			return fault
		}
		m.ran = append(m.ran, item.Index)
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
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

// Results that travel inline are those of one attempt: it goes on after a death, and does
// not go back for want of a slot once it has some. Another attempt begins anew.
func TestRunChunk_ResultsThatTravelInline(t *testing.T) {
	for name, c := range map[string]struct {
		fault gpumux.Fault
		ran   []int64
		first []int // calls that begin an attempt
	}{
		"death":  {gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run"}, []int64{0, 1, 2, 3, 4, 5, 6, 7}, []int{0}},
		"device": {gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "run", Blameless: true}, []int64{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &mortal{fault: &c.fault}
			result := newLab(t, runner).inWorkflow(contract.Chunk{Range: &gpumux.Range{End: 8}, Work: contract.Whole(8)}, 0, nil)
			require.EqualValues(t, 8, result.Succeeded)
			require.Len(t, result.Results, 8)
			require.Equal(t, c.ran, runner.ran)
			want := make([]time.Duration, len(runner.patience))
			for _, at := range c.first {
				want[at] = slotPatience
			}
			require.Equal(t, want, runner.patience)
		})
	}
}
