package workflows_test

import (
	"fmt"
	"log"
	"log/slog"
	"strconv"

	"github.com/stretchr/testify/mock"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// A service's workflow maps a task over items. Its test needs no worker and no server.
func ExampleMap() {
	lengths := func(ctx workflow.Context, texts []string) ([]int, error) {
		mapped, err := workflows.Map[string, int](ctx, gpumux.MapInput{Task: "text:length", Ladder: []string{"cpu"}}, texts)
		if err != nil {
			return nil, err
		}
		return mapped.Values()
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	workflowstest.Handle(workflowstest.New(env), "text:length", func(text string) (int, error) { return len(text), nil })
	env.ExecuteWorkflow(lengths, []string{"one", "three"})
	var got []int
	if err := env.GetWorkflowResult(&got); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got)
	// Output:
	// [3 5]
}

// The fault behind a map's error tells the workflow what it can do.
func ExampleFaultOf() {
	embed := func(ctx workflow.Context, texts []string) (string, error) {
		_, err := workflows.Map[string, []float64](ctx, gpumux.MapInput{Task: "embedd"}, texts)
		if fault := workflows.FaultOf(err); fault != nil && fault.Kind == gpumux.FaultBadInput {
			return "trying again cannot help: " + fault.Message, nil
		}
		return "done", err
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	workflowstest.Handle(workflowstest.New(env), "embed", func(string) ([]float64, error) { return nil, nil })
	env.ExecuteWorkflow(embed, []string{"a text"})
	var greeting string
	if err := env.GetWorkflowResult(&greeting); err != nil {
		log.Fatal(err)
	}
	fmt.Println(greeting)
	// Output:
	// trying again cannot help: no stand-in for task "embedd"; there are embed
}

// A map over a file or a range may have any size. Its results lie in a file too.
func ExampleMapSource() {
	nightly := func(ctx workflow.Context) (string, error) {
		summary, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "simulate", Range: &gpumux.Range{End: 100_000}, Output: "nightly.jsonl"})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d of %d, in %s", summary.Succeeded, summary.Items, summary.Output), nil
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	workflowstest.New(env)
	env.OnWorkflow(gpumux.MapWorkflow, mock.Anything, mock.Anything).Return(func(_ workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
		return gpumux.Summary{Items: in.Range.Len(), Succeeded: in.Range.Len(), Output: in.Output}, nil
	})
	env.ExecuteWorkflow(nightly)
	var greeting string
	if err := env.GetWorkflowResult(&greeting); err != nil {
		log.Fatal(err)
	}
	fmt.Println(greeting)
	// Output:
	// 100000 of 100000, in nightly.jsonl
}

// Results can be read while the map runs, in the order in which items finish.
func ExampleMapAsync() {
	longest := func(ctx workflow.Context, texts []string) (string, error) {
		running := workflows.MapAsync[string, int](ctx, gpumux.MapInput{Task: "text:length"}, texts)
		best, seen := 0, 0
		for {
			r, more := running.Next(ctx)
			if !more {
				break
			}
			best, seen = max(best, r.Value), seen+1
		}
		mapped, err := running.Get(ctx)
		return fmt.Sprintf("%d of %d, up to %d", seen, mapped.Summary.Items, best), err
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	workflowstest.Handle(workflowstest.New(env), "text:length", func(text string) (int, error) { return len(text), nil })
	env.ExecuteWorkflow(longest, []string{"one", "three"})
	var greeting string
	if err := env.GetWorkflowResult(&greeting); err != nil {
		log.Fatal(err)
	}
	fmt.Println(greeting)
	// Output:
	// 2 of 2, up to 5
}

// Maps follow maps: two of them at the same time over what the first one made, and over
// the items that it could not do.
func ExampleMapSourceAsync() {
	pipeline := func(ctx workflow.Context) (string, error) {
		parsed, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "parse", Source: "pages.jsonl", WithItem: true})
		if err != nil {
			return "", err
		}
		square := workflows.MapSourceAsync(ctx, gpumux.MapInput{Task: "square", Source: gpumux.ValuesOf(parsed.Output)})
		slow := workflows.MapSourceAsync(ctx, gpumux.MapInput{Task: "parse:slow", Source: gpumux.FailedOf(parsed.Output)})
		squares, err := square.Get(ctx)
		if err != nil {
			return "", err
		}
		again, err := slow.Get(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("squared %d, parsed again %d", squares.Succeeded, again.Succeeded), nil
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	if err := tasks.Source("pages.jsonl", "3", "four", "5"); err != nil {
		log.Fatal(err)
	}
	workflowstest.Handle(tasks, "parse", strconv.Atoi)
	workflowstest.Handle(tasks, "parse:slow", func(word string) (int, error) { return len(word), nil })
	workflowstest.Handle(tasks, "square", func(n int) (int, error) { return n * n, nil })
	env.ExecuteWorkflow(pipeline)
	var greeting string
	if err := env.GetWorkflowResult(&greeting); err != nil {
		log.Fatal(err)
	}
	fmt.Println(greeting)
	// Output:
	// squared 2, parsed again 1
}

// A workflow reads the results of a map from their file, a page at a time.
func ExamplePage() {
	failures := func(ctx workflow.Context) (faults []string, err error) {
		summary, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "parse", Source: "pages.jsonl"})
		if err != nil {
			return nil, err
		}
		for at, more := int64(0), true; more; more = at > 0 {
			var page []workflows.Result[int]
			if page, at, err = workflows.Page[int](ctx, summary.Output, at, 2); err != nil {
				return nil, err
			}
			for _, r := range page {
				if r.Fault != nil {
					faults = append(faults, fmt.Sprint(r.Index, ": ", r.Fault.Message))
				}
			}
		}
		return faults, nil
	}

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	tasks := workflowstest.New(env)
	if err := tasks.Source("pages.jsonl", "3", "four", "5"); err != nil {
		log.Fatal(err)
	}
	workflowstest.Handle(tasks, "parse", strconv.Atoi)
	env.ExecuteWorkflow(failures)
	var faults []string
	if err := env.GetWorkflowResult(&faults); err != nil {
		log.Fatal(err)
	}
	fmt.Println(faults)
	// Output:
	// [1: strconv.Atoi: parsing "four": invalid syntax]
}
