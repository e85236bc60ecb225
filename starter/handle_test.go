package starter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// Callers find the fault of a map and Temporal's error, and no fault where there is none.
func TestEndedError_UnwrapsToFault(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	endedBy := func(err error) error {
		env := suite.NewTestWorkflowEnvironment()
		env.ExecuteWorkflow(func(workflow.Context) error { return err })
		return ended("m", true, env.GetWorkflowError())
	}
	var fault *gpumux.Fault
	index := int64(7)
	err := endedBy(temporal.NewNonRetryableApplicationError("crash", "crash", nil, gpumux.Fault{Kind: gpumux.FaultCrash, Message: "gone", Index: &index}))
	require.ErrorAs(t, err, &fault)
	require.Equal(t, gpumux.FaultCrash, fault.Kind)
	require.EqualError(t, err, "map m failed at item 7: crash: gone")
	require.ErrorAs(t, err, new(*temporal.ApplicationError))

	for _, err := range []error{endedBy(errors.New("no fault")), endedBy(temporal.NewCanceledError())} {
		require.ErrorAs(t, err, new(*EndedError))
		require.False(t, errors.As(err, &fault))
		require.ErrorAs(t, err, new(*temporal.WorkflowExecutionError))
	}
}

// Only a map with a folder of its own goes on when it is started again.
func TestEndedError_SaysWhetherTheMapGoesOn(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(workflow.Context) error { return temporal.NewCanceledError() })
	require.EqualError(t, ended("m", true, env.GetWorkflowError()), "map m was cancelled; start it again to go on with the items that have no result")
	require.EqualError(t, ended("m", false, env.GetWorkflowError()), "map m was cancelled")
}
