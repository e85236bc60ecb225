package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// chained is what pipeline came to.
type chained struct {
	First, Again gpumux.Summary
	Paged        []int64
	Pages        int
	Doubled      []int64
	Fault        *gpumux.Fault
}

// pipeline is somebody's own workflow: a map, a second one over its failed items beside a
// third in the workflow, pages of the first one's results, and a map that fails.
func pipeline(ctx workflow.Context) (c chained, err error) {
	cpu := []string{"cpu"}
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: "pipeline/first"})
	c.First, err = workflows.MapSource(ctx, gpumux.MapInput{Task: "fail", Range: &gpumux.Range{End: 30}, Ladder: cpu, WithItem: true, Output: "first.jsonl"})
	if err != nil {
		return c, err
	}
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: "pipeline/again"})
	again := workflows.MapSourceAsync(ctx, gpumux.MapInput{Task: "double", Source: gpumux.FailedOf(c.First.Output), Ladder: cpu, Output: "again.jsonl"})
	var items []int64
	for at, more := int64(0), true; more; more = at > 0 {
		var page []workflows.Result[int64]
		if page, at, err = workflows.Page[int64](ctx, c.First.Output, at, 12); err != nil {
			return c, err
		}
		c.Pages++
		for _, r := range page {
			if c.Paged = append(c.Paged, r.Index); r.Fault == nil {
				items = append(items, r.Value)
			}
		}
	}
	running := workflows.MapAsync[int64, int64](ctx, gpumux.MapInput{Task: "double", Ladder: cpu, Chunk: 3}, items)
	for {
		r, more := running.Next(ctx)
		if !more {
			break
		}
		c.Doubled = append(c.Doubled, r.Value)
	}
	if _, err = running.Get(ctx); err != nil {
		return c, err
	}
	if c.Again, err = again.Get(ctx); err != nil {
		return c, err
	}
	_, err = workflows.Map[int, int](ctx, gpumux.MapInput{Task: "fail", Ladder: cpu, MaxFailures: "0"}, []int{3})
	if !errors.As(err, &c.Fault) {
		return c, fmt.Errorf("a map that is to fail: %w", err)
	}
	_, _, err = workflows.Page[int](ctx, "nowhere.jsonl", 0, 0)
	if fault := new(gpumux.Fault); !errors.As(err, &fault) || fault.Kind != gpumux.FaultBadInput {
		return c, fmt.Errorf("a page of no file: %w", err)
	}
	return c, nil
}

func TestMap_MapsFollowMapsInAWorkflow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	service(t, s.client, map[string]any{"pipeline": pipeline})
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "pipeline", TaskQueue: "service"}, "pipeline")
	require.NoError(t, err)
	var c chained
	require.NoError(t, run.Get(t.Context(), &c))
	require.Equal(t, []int64{20, 10}, []int64{c.First.Succeeded, c.First.Failed})
	require.Equal(t, 3, c.Pages)
	require.Len(t, c.Paged, 30)
	for i, index := range c.Paged {
		require.EqualValues(t, i, index)
	}
	require.EqualValues(t, 10, c.Again.Succeeded)
	require.Len(t, c.Doubled, 20)
	require.Equal(t, "3 is a multiple of three", c.Fault.Message)
	require.NoError(t, s.client.GetWorkflow(t.Context(), "pipeline/again", "").Get(t.Context(), nil), "the child's ID is the caller's")
}
