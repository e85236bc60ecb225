package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// What a client of a service prints when a map of its workflow fails: the
// message, its hint and its kind once, and no names of types of this project.
func TestErrors_AsAClientOfAServicePrintsThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 4)
	cpu := []string{"cpu"}
	long := gpumux.MapInput{Task: "slow", Items: items(30), Ladder: cpu}
	child := func(o workflow.ChildWorkflowOptions, in gpumux.MapInput) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			_, err := workflows.MapSource(workflow.WithChildOptions(ctx, o), in)
			return err
		}
	}
	inline := func(in gpumux.MapInput, items ...int) func(workflow.Context) error {
		in.Ladder = cpu
		return func(ctx workflow.Context) error {
			mapped, err := workflows.Map[int, int](ctx, in, items)
			if err == nil {
				_, err = mapped.Values()
			}
			return err
		}
	}
	limited := long
	limited.MapTimeout = gpumux.Duration(100 * time.Millisecond)
	late := "the map's workflow took longer than its child options allow; give the input a mapTimeout instead, whose error says how many items are done; " +
		"the map named no output, so started again it runs all items (type: timeout, retryable: false): gpumux task slow"
	callers := map[string]any{}
	for name, c := range map[string]struct {
		f    func(workflow.Context) error
		want string
	}{
		"execution timeout": {child(workflow.ChildWorkflowOptions{WorkflowExecutionTimeout: 2 * time.Second}, long), late},
		"run timeout":       {child(workflow.ChildWorkflowOptions{WorkflowRunTimeout: 3 * time.Second}, long), late},
		"terminated":        {child(workflow.ChildWorkflowOptions{WorkflowID: "terminated"}, long), "): terminated"},
		"cancelled":         {child(workflow.ChildWorkflowOptions{WorkflowID: "cancelled"}, long), "canceled"},
		"map timeout": {child(workflow.ChildWorkflowOptions{}, limited), "the map took longer than its mapTimeout of 100ms; 0 of 1 items are done; " +
			"give it a longer mapTimeout (type: timeout, retryable: false): gpumux task slow"},
		"taken": {func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: "taken"}))
			first := workflows.MapSourceAsync(ctx, long)
			_, err := workflows.MapSource(ctx, long)
			cancel()
			_, _ = first.Get(ctx)
			return err
		}, `the ID "taken" is that of a workflow that runs, or that WorkflowIDReusePolicy protects; give another (type: bad_input, retryable: false): gpumux`},
		"invalid": {child(workflow.ChildWorkflowOptions{}, gpumux.MapInput{Task: "t", Range: &gpumux.Range{End: -1}}),
			"invalid map input: range: end -1 is before start 0 (type: bad_input, retryable: false): gpumux"},
		"unknown": {inline(gpumux.MapInput{Task: "t"}, 1), "slow, text, wait, whole; name the task in the worker's file, or use one of these (type: bad_input, retryable: false): gpumux task t"},
		"values":  {inline(gpumux.MapInput{Task: "fail"}, 1, 3), "item 1: ValueError: 3 is a multiple of three (type: task_error, retryable: false): gpumux task fail in slot cpu/"},
		"failed": {inline(gpumux.MapInput{Task: "fail", MaxFailures: "0"}, 3), "item 0 failed, and none may: ValueError: 3 is a multiple of three; " +
			"results of a map inside a workflow are not stored, so all its items run again (type: task_error, retryable: false): gpumux task fail in slot cpu/"},
		"page": {func(ctx workflow.Context) error {
			_, _, err := workflows.Page[int](ctx, "nothing.jsonl", 0, 0)
			return err
		}, "nothing.jsonl: file does not exist; name the results file of a map that has completed (type: bad_input, retryable: false): gpumux"},
	} {
		callers[name] = c.f
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "caller of " + name, TaskQueue: "service"}, name)
			require.NoError(t, err)
			switch name {
			case "terminated":
				require.Eventually(t, func() bool { return s.client.TerminateWorkflow(t.Context(), name, "", "by an operator") == nil }, 20*time.Second, 20*time.Millisecond)
			case "cancelled":
				require.Eventually(t, func() bool { return s.client.CancelWorkflow(t.Context(), name, "") == nil }, 20*time.Second, 20*time.Millisecond)
			}
			err = run.Get(t.Context(), nil)
			_, printed, _ := strings.Cut(err.Error(), "): ") // behind the names of the caller
			require.Equal(t, 1, strings.Count(printed, c.want), "%s", printed)
			if fault := workflows.FaultOf(err); fault != nil {
				require.Equal(t, 1, strings.Count(printed, string(fault.Kind)), "%s", printed)
				require.Equal(t, 1, strings.Count(printed, "retryable: "), "%s", printed)
				require.Equal(t, 1, strings.Count(printed, fault.Message), "%s", printed)
				require.Equal(t, fault.Hint != "", strings.Contains(printed, fmt.Sprintf("; %s (type: ", fault.Hint)), "%s", printed)
			}
		})
	}
	service(t, s.client, callers)
}
