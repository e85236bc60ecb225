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

// The calls of a lease find the same stand-ins. A handle stays a handle there, and a fault
// of the kind slot_lost takes the slot away: this one is lost once, and built anew.
func ExampleHandle_lease() {
	score := func(ctx workflow.Context, texts []string) (total int, err error) {
		load := func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", "tiny")
			return err
		}
		o := workflows.LeaseOptions{Ladder: []string{"gpu"}, Rebuild: load}
		err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			model, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", "tiny")
			for _, text := range texts {
				if err != nil {
					return err
				}
				var n int
				n, err = workflows.Call[int](ctx, s, "model:score", map[string]any{"model": model, "text": text})
				total += n
			}
			return err
		})
		return total, err
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	loads, lost := 0, false
	workflowstest.Handle(tasks, "model:load", func(name string) (gpumux.Resident, error) {
		loads++
		return gpumux.Resident{Key: name, Task: "model:load"}, nil
	})
	workflowstest.Handle(tasks, "model:score", func(item struct {
		Model gpumux.Resident
		Text  string
	}) (int, error) {
		if item.Text == "three" && !lost {
			lost = true
			return 0, &gpumux.Fault{Kind: gpumux.FaultSlotLost, Blameless: true, Message: "the host is gone"}
		}
		return len(item.Text) * len(item.Model.Key), nil
	})
	env.ExecuteWorkflow(score, []string{"one", "three"})
	var total int
	if err := env.GetWorkflowResult(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println("score", total, "with", loads, "loads")
	// Output:
	// score 32 with 2 loads
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
