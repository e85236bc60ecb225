package workflows

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

func TestFairly_EachMapHasAKey(t *testing.T) {
	long, hash := strings.Repeat("ü", 100), "83af2e24c464bea3ce77f43643ef76b5726234733b89415dc66f1aa37bfeb283"
	for _, c := range []struct {
		name, id string
		in       gpumux.MapInput
		want     temporal.Priority
	}{
		{"its ID", "embed-1", gpumux.MapInput{}, temporal.Priority{FairnessKey: "embed-1"}},
		{"its own", "embed-1", gpumux.MapInput{Priority: 2, FairnessKey: "team", FairnessWeight: 0.5},
			temporal.Priority{PriorityKey: 2, FairnessKey: "team", FairnessWeight: 0.5}},
		{"a long ID", long, gpumux.MapInput{}, temporal.Priority{FairnessKey: hash}},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()
			var got temporal.Priority
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				got = fairly(ctx, c.in, c.id)
				return nil
			})
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, c.want, got)
		})
	}
}
