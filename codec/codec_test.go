package codec

import (
	"errors"
	"testing"

	"github.com/gpumux/gpumux/internal/test/codectest"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
)

// away is a codec that fails.
type away struct{ err error }

func (a away) Encode([]*common.Payload) ([]*common.Payload, error) { return nil, a.err }
func (a away) Decode([]*common.Payload) ([]*common.Payload, error) { return nil, a.err }

// A codec that fails is the error of an activity and of a client, and in a workflow that
// of its task. One that refuses a payload is the workflow's own error.
func TestConverter_InAWorkflow(t *testing.T) {
	plain, err := Converter(nil, nil).ToPayload("text")
	require.NoError(t, err)
	var back string
	down := errors.New("out of order")
	require.ErrorIs(t, Converter(nil, away{down}).FromPayload(plain, &back), down)
	for err, fails := range map[error]bool{down: true, converter.ErrUnableToDecode: false} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			data := Converter(nil, away{err}).(converter.ContextAware).WithWorkflowContext(ctx)
			if !errors.Is(data.FromPayload(plain, &back), converter.ErrUnableToDecode) {
				return errors.New("it gave another error")
			}
			return nil
		})
		var panicked *temporal.PanicError
		require.Equal(t, fails, errors.As(env.GetWorkflowError(), &panicked), "%v", env.GetWorkflowError())
		if fails {
			require.Contains(t, panicked.Error(), "decode payloads: out of order; the workflow task is tried again")
		}
	}
}

// What cannot be encoded leaks nothing, and stays nowhere: what is tried again says so,
// and what would stay in a history fails the workflow's task.
func TestFailures_WhileTheCodecIsAway(t *testing.T) {
	final := temporal.NewNonRetryableApplicationError("marker", "marker", nil, "marker")
	f := Failures(Converter(nil, away{errors.New("marker")}))
	for _, belongs := range []converter.SerializationContext{nil, converter.ActivitySerializationContext{}, converter.NexusSerializationContext{}} {
		failure := converter.WithFailureConverterSerializationContext(f, belongs).ErrorToFailure(final)
		require.Contains(t, failure.GetMessage(), "the codec failed")
		require.NotContains(t, failure.String(), "marker")
		require.False(t, failure.GetApplicationFailureInfo().GetNonRetryable())
	}
	require.Panics(t, func() {
		converter.WithFailureConverterSerializationContext(f, converter.WorkflowSerializationContext{}).ErrorToFailure(final)
	})
}

func TestApply_FailuresKeepNothingPlain(t *testing.T) {
	var o client.Options
	Apply(&o, nil)
	require.Nil(t, o.DataConverter)
	require.Nil(t, o.FailureConverter)
	Apply(&o, codectest.Flipped{})
	failure := o.FailureConverter.ErrorToFailure(temporal.NewApplicationErrorWithOptions("marker", "kind", temporal.ApplicationErrorOptions{
		Details: []any{"marker"}, Cause: errors.New("marker")}))
	require.NotContains(t, failure.String(), "marker")
	var back *temporal.ApplicationError
	require.ErrorAs(t, o.FailureConverter.FailureToError(failure), &back)
	require.Equal(t, "marker", back.Message())
	var detail string
	require.NoError(t, back.Details(&detail))
	require.Equal(t, "marker", detail)
}
