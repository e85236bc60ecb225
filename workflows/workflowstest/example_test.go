package workflowstest_test

import (
	"errors"
	"fmt"
	"log"
	"log/slog"

	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// A function stands for a task; its error is the item's fault.
func ExampleHandle() {
	double := func(ctx workflow.Context, numbers []int) ([]workflows.Result[int], error) {
		return workflows.Map[int, int](ctx, "double", numbers, workflows.Options{})
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	workflowstest.Handle(tasks, "double", func(n int) (int, error) {
		if n > 100 {
			return 0, &gpumux.Fault{Kind: gpumux.HostOOM, Message: "too large"}
		}
		if n < 0 {
			return 0, errors.New("too small")
		}
		return 2 * n, nil
	})
	env.ExecuteWorkflow(double, []int{21, 101, -1})
	var results []workflows.Result[int]
	if err := env.GetWorkflowResult(&results); err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Value, r.Fault != nil && r.Fault.Kind.Memory(), r.Fault)
	}
	// Output:
	// 42 false <nil>
	// 0 true host_oom: too large
	// 0 false task_error: too small
}
