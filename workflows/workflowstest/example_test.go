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
	double := func(ctx workflow.Context, numbers []int) (workflows.Mapped[int], error) {
		return workflows.Map[int, int](ctx, gpumux.MapInput{Task: "double"}, numbers)
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	workflowstest.Handle(tasks, "double", func(n int) (int, error) {
		if n > 100 {
			return 0, &gpumux.Fault{Kind: gpumux.FaultHostOOM, Message: "too large"}
		}
		if n < 0 {
			return 0, errors.New("too small")
		}
		return 2 * n, nil
	})
	env.ExecuteWorkflow(double, []int{21, 101, -1})
	var mapped workflows.Mapped[int]
	if err := env.GetWorkflowResult(&mapped); err != nil {
		log.Fatal(err)
	}
	for _, r := range mapped.Results {
		fmt.Println(r.Value, r.Fault != nil && r.Fault.Kind.Memory(), r.Fault)
	}
	// Output:
	// 42 false <nil>
	// 0 true host_oom: too large
	// 0 false task_error: too small
}

// What the workflow asked for, and what its map left in the store.
func ExampleTasks() {
	lengths := func(ctx workflow.Context) (string, error) {
		summary, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "length", Source: "texts.jsonl", Ladder: []string{"cpu"}})
		return summary.Output, err
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	if err := tasks.Source("texts.jsonl", "one", "three"); err != nil {
		log.Fatal(err)
	}
	workflowstest.Handle(tasks, "length", func(text string) (int, error) { return len(text), nil })
	env.ExecuteWorkflow(lengths)
	var output string
	if err := env.GetWorkflowResult(&output); err != nil {
		log.Fatal(err)
	}
	fmt.Println("asked for", tasks.Inputs()[0].Source, "on", tasks.Inputs()[0].Ladder)
	for _, r := range tasks.Results(output) {
		fmt.Println(r.Index, string(r.Value))
	}
	// Output:
	// asked for texts.jsonl on [cpu]
	// 0 3
	// 1 5
}
