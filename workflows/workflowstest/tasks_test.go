package workflowstest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// shout is a workflow of a user.
func shout(ctx workflow.Context, words []string) ([]string, error) {
	mapped, err := workflows.Map[string, string](ctx, gpumux.MapInput{Task: "text:shout"}, words)
	if err != nil {
		return nil, err
	}
	return mapped.Values()
}

func environment() (*testsuite.TestWorkflowEnvironment, *workflowstest.Tasks) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	return env, workflowstest.New(env)
}

func TestTasks_StandForAMap(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) {
		if word == "" {
			return "", errors.New("nothing to shout")
		}
		return strings.ToUpper(word), nil
	})
	env.ExecuteWorkflow(shout, []string{"a", "b"})
	var loud []string
	require.NoError(t, env.GetWorkflowResult(&loud))
	require.Equal(t, []string{"A", "B"}, loud)
}

func TestTasks_FailAsWorkersDo(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return strings.Repeat(word, 1<<20), nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), "item 0: the result has 1MiB, more than the 1MiB that travel inline")

	env, tasks = environment()
	calls := 0
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { calls++; panic("boom") })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), "the stand-in for task text:shout panicked: boom")
	require.ErrorContains(t, env.GetWorkflowError(), "tasks_test.go:")
	require.Equal(t, 1, calls)

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return "", errors.New("no " + word) })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), "item 0: no a (type: task_error, retryable: false)")

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return "", &gpumux.Fault{Kind: gpumux.FaultDeviceOOM} })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.Equal(t, gpumux.FaultDeviceOOM, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "other", func(int) (int, error) { return 0, nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `no stand-in for task "text:shout"; there are other`)
	require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word int) (string, error) { return "", nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `the item "a" does not fit int`)
}

func TestTasks_StandForASource(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "length", func(word string) (int, error) { return len(word), nil })
	require.NoError(t, tasks.Source("words.jsonl", "one", "three"))
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "length", Source: "words.jsonl"})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 2, s.Succeeded)
	results := tasks.Results(s.Output)
	require.Len(t, results, 2)
	require.Equal(t, "5", string(results[1].Value))
	require.Equal(t, "words.jsonl", tasks.Inputs()[0].Source)

	env, tasks = environment()
	workflowstest.Handle(tasks, "count", func(row struct{ N int }) (int, error) {
		if row.N == 2 {
			return 0, errors.New("no 2")
		}
		return 10 * row.N, nil
	})
	workflowstest.Handle(tasks, "twice", func(n int) (int, error) { return 2 * n, nil })
	require.NoError(t, tasks.Source("rows.jsonl", map[string]any{"id": "a", "n": 1}, map[string]any{"id": "b", "n": 2}, map[string]any{"n": 3}))
	env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
		first, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "count", Source: "rows.jsonl", Key: "id", Output: "first.jsonl"})
		if err != nil {
			return "", err
		}
		second, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "twice", Source: gpumux.ValuesOf(first.Output), WithItem: true})
		return second.Output, err
	})
	var output string
	require.NoError(t, env.GetWorkflowResult(&output))
	require.Equal(t, []gpumux.Result{
		{Index: 0, Value: json.RawMessage("20"), Key: json.RawMessage(`"a"`), Item: json.RawMessage("10")},
		{Index: 1, Value: json.RawMessage("60"), Key: json.RawMessage("null"), Item: json.RawMessage("30")},
	}, tasks.Results(output))

	env, tasks = environment()
	workflowstest.Handle(tasks, "twice", func(n int) (int, error) { return 2 * n, nil })
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "twice", Range: &gpumux.Range{Start: 3, End: 5}})
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Equal(t, "8", string(tasks.Results(s.Output)[1].Value))

	env, _ = environment()
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "length", Source: "nowhere.jsonl"})
	require.ErrorContains(t, env.GetWorkflowError(), "make one with Tasks.Source")
}

// A map in a workflow and one over a source go through their stages alike.
func TestTasks_Stages(t *testing.T) {
	in := gpumux.MapInput{Stages: []gpumux.Stage{{Task: "text:shout", Ladder: []string{"cpu"}}, {Task: "length"}}, WithItem: true}
	inline := func(ctx workflow.Context, in gpumux.MapInput) (s gpumux.Summary, err error) {
		mapped, err := workflows.Map[string, json.RawMessage](ctx, in, []string{"a", "", "long"})
		for _, r := range mapped.Results {
			mapped.Summary.Results = append(mapped.Summary.Results, gpumux.Result{Index: r.Index, Value: r.Value, Fault: r.Fault, Item: r.Item})
		}
		return mapped.Summary, err
	}
	source := func(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
		in.Source = "words.jsonl"
		return workflows.MapSource(ctx, in)
	}
	words := func() (*testsuite.TestWorkflowEnvironment, *workflowstest.Tasks) {
		env, tasks := environment()
		require.NoError(t, tasks.Source("words.jsonl", "a", "", "long"))
		workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) {
			if word == "" {
				return "", errors.New("nothing to shout")
			}
			return strings.ToUpper(word), nil
		})
		return env, tasks
	}
	for _, f := range []any{inline, source} {
		env, _ := words()
		env.ExecuteWorkflow(f, in)
		require.ErrorContains(t, env.GetWorkflowError(), `no stand-in for task "length"; there are text:shout`)

		env, tasks := words()
		workflowstest.Handle(tasks, "length", func(loud string) (int, error) {
			if len(loud) > 3 {
				return 0, fmt.Errorf("%s is too long", loud)
			}
			return len(loud), nil
		})
		env.ExecuteWorkflow(f, in)
		var s gpumux.Summary
		require.NoError(t, env.GetWorkflowResult(&s))
		require.Equal(t, "text:shout > length", s.Task)
		require.Equal(t, []int64{1, 2, 2, 1, 1, 1}, []int64{s.Succeeded, s.Failed, s.Stages[0].Succeeded, s.Stages[0].Failed,
			s.Stages[1].Succeeded, s.Stages[1].Failed})
		require.Equal(t, gpumux.Result{Value: []byte("1"), Item: []byte(`"a"`)}, s.Results[0])
		require.Equal(t, []string{"text:shout", "nothing to shout"}, []string{s.Results[1].Fault.Task, s.Results[1].Fault.Message})
		require.Equal(t, []string{"length", "LONG is too long"}, []string{s.Results[2].Fault.Task, s.Results[2].Fault.Message})
		require.Equal(t, `"long"`, string(s.Results[2].Item))
	}
}

// A branch on the end of a whole map can be tested, such as on a pool that nobody serves.
func TestTasks_FailEndsMaps(t *testing.T) {
	fault := gpumux.Fault{Kind: gpumux.FaultTimeout, Op: "start", Message: "no worker serves the pool"}
	for name, f := range map[string]func(ctx workflow.Context, in gpumux.MapInput) error{
		"Map": func(ctx workflow.Context, in gpumux.MapInput) error {
			_, err := workflows.Map[int, int](ctx, in, []int{1})
			return err
		},
		"MapSource": func(ctx workflow.Context, in gpumux.MapInput) error {
			in.Range = &gpumux.Range{End: 2}
			_, err := workflows.MapSource(ctx, in)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, tasks := environment()
			workflowstest.Handle(tasks, "double", func(n int) (int, error) { return 2 * n, nil })
			tasks.Fail("double", fault)
			env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
				var found *gpumux.Fault
				if err := f(ctx, gpumux.MapInput{Task: "double"}); !errors.As(err, &found) {
					return "", fmt.Errorf("no fault: %w", err)
				}
				return string(found.Kind) + " " + found.Op, nil
			})
			var greeting string
			require.NoError(t, env.GetWorkflowResult(&greeting))
			require.Equal(t, "timeout start", greeting)
		})
	}
}

func TestTasks_APageOfNoFileSaysWhatToDo(t *testing.T) {
	env, _ := environment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		_, _, err := workflows.Page[int](ctx, "", 0, 0)
		return err
	})
	require.ErrorContains(t, env.GetWorkflowError(), "output: is missing; give the Output of the summary")
}

// The results of a map are there for the maps and pages behind it.
func TestTasks_ChainMaps(t *testing.T) {
	for _, withItem := range []bool{true, false} {
		env, tasks := environment()
		require.NoError(t, tasks.Source("rows.jsonl", map[string]any{"id": "a", "n": 1}, map[string]any{"id": "b", "n": 2}, map[string]any{"id": "c", "n": 3}))
		workflowstest.Handle(tasks, "odd", func(row struct{ N int }) (int, error) {
			if row.N%2 == 0 {
				return 0, errors.New("even")
			}
			return row.N, nil
		})
		workflowstest.Handle(tasks, "half", func(row struct{ N int }) (int, error) { return row.N / 2, nil })
		env.ExecuteWorkflow(func(ctx workflow.Context) (page []workflows.Result[int], err error) {
			first, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "odd", Source: "rows.jsonl", Key: "id", WithItem: withItem})
			if err != nil {
				return nil, err
			}
			second, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "half", Source: gpumux.FailedOf(first.Output)})
			if err != nil {
				return nil, err
			}
			two, next, err := workflows.Page[int](ctx, first.Output, 0, 2)
			if err != nil {
				return nil, err
			}
			three, end, err := workflows.Page[int](ctx, first.Output, next, 0)
			if end != 0 || err != nil {
				return nil, err
			}
			again, _, err := workflows.Page[int](ctx, second.Output, 0, 0)
			return append(append(two, three...), again...), err
		})
		var page []workflows.Result[int]
		err := env.GetWorkflowResult(&page)
		if !withItem {
			require.ErrorContains(t, err, "item 1 failed, and its result lacks it; run the map that wrote it with withItem")
			continue
		}
		require.NoError(t, err)
		require.Len(t, page, 4)
		require.Equal(t, "even", page[1].Fault.Message)
		require.Equal(t, 3, page[2].Value)
		require.Equal(t, workflows.Result[int]{Value: 1, Key: json.RawMessage(`"b"`)}, page[3])
	}
}
