package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// Results can be read while the map runs, in the order in which their items finish, and
// nobody has to read them.
func TestMapAsync_ResultsComeWhileTheMapRuns(t *testing.T) {
	first := make(chan struct{})
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) == 0 {
			<-first
		}
		return nil, nil
	}}
	env := environment(20 * time.Second)
	w.register(env)
	type seen struct {
		Order   []int64
		Running bool
		Values  []int
		Sum     int
	}
	env.ExecuteWorkflow(func(ctx workflow.Context) (s seen, err error) {
		in := gpumux.MapInput{Task: "square", Chunk: 1, Window: 2}
		read, unread := workflows.MapAsync[int, int](ctx, in, []int{0, 1, 2, 3}), workflows.MapAsync[int, int](ctx, in, []int{5, 6})
		for {
			r, more := read.Next(ctx)
			if !more {
				break
			}
			if s.Order = append(s.Order, r.Index); len(s.Order) == 3 {
				s.Running = !read.IsReady()
				close(first)
			}
			s.Sum += r.Value
		}
		other, err := unread.Get(ctx)
		if err != nil {
			return s, err
		}
		workflow.NewSelector(ctx).AddFuture(read.Done(), func(workflow.Future) {}).Select(ctx)
		all, err := read.Get(ctx)
		if err == nil && len(other.Results) == 2 {
			s.Values, err = all.Values()
		}
		return s, err
	})
	var s seen
	require.NoError(t, env.GetWorkflowResult(&s))
	require.True(t, s.Running, "the first item was still under way")
	require.Equal(t, int64(0), s.Order[3])
	require.Equal(t, []int{0, 1, 4, 9}, s.Values)
	require.Equal(t, 14, s.Sum)
}

// The SDK's selector leaves a nil in a channel that is closed while it waits. Nobody may
// take that for a result, in this selector, in another, or by Next.
func TestRunning_InASelectorHasNoResultTooMany(t *testing.T) {
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) == 2 {
			return failing(c), nil
		}
		return nil, nil
	}}
	env := run(t, w, func(ctx workflow.Context) (seen []int64, err error) {
		running := workflows.MapAsync[int, int](ctx, gpumux.MapInput{Task: "square", Chunk: 1, Window: 1, MaxFailures: "0"}, []int{0, 1, 2, 3})
		ended := 0
		add := func() workflow.Selector {
			selector := workflow.NewSelector(ctx)
			running.AddTo(selector, func(r workflows.Result[int], more bool) {
				if !more {
					ended++
					return
				}
				seen = append(seen, r.Index)
			})
			return selector
		}
		selector := add()
		for ended == 0 {
			selector.Select(ctx)
		}
		selector.Select(ctx)
		add().Select(ctx)
		if _, more := running.Next(ctx); more || ended != 3 {
			return nil, fmt.Errorf("%d ends, and more is %t", ended, more)
		}
		return seen, nil
	})
	var seen []int64
	require.NoError(t, env.GetWorkflowResult(&seen))
	require.Equal(t, []int64{0, 1, 2}, seen)
}

func TestMap_WhatNeedsAStoreIsAMistake(t *testing.T) {
	for want, in := range map[string]gpumux.MapInput{
		"items: are an argument of Map":           {Source: "x.jsonl"},
		"range; MapSource takes those":            {Range: &gpumux.Range{}},
		"source or range; MapSource":              {Items: []json.RawMessage{}},
		"output: is for the results of MapSource": {Output: "o.jsonl"},
		"columns: go with Parquet files":          {Columns: []string{"a"}},
		`key: "id" is no field`:                   {Key: "id"},
	} {
		w := &worker{}
		err := run(t, w, square, 2, in).GetWorkflowError()
		require.ErrorContains(t, err, want)
		require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
		require.Empty(t, w.chunks)
	}
	err := run(t, &worker{}, square, 2, gpumux.MapInput{Output: "/o.jsonl", Attempts: 1000, Priority: 9}).GetWorkflowError()
	for _, mistake := range []string{"output: is for", "attempts: 1000", "priority: 9"} {
		require.ErrorContains(t, err, mistake, "every mistake is named")
	}
	require.NotContains(t, err.Error(), "/o.jsonl", "and each once")
}

// errors.As finds the fault in workflow code. On the wire the error is as before, with a
// cause that does not repeat it.
func TestFault_InErrorsOfMaps(t *testing.T) {
	var errs []error
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		r := failing(c)
		for i := range r.Recent {
			r.Recent[i].Fault.Host, r.Recent[i].Fault.Task, r.Recent[i].Fault.PID = "h1", "square", 12
		}
		return r, nil
	}}
	env := run(t, w, func(ctx workflow.Context) error {
		_, one := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "square", MaxFailures: "0"}, []int{1})
		_, two := workflows.MapSource(ctx, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 1}, MaxFailures: "0"})
		_, three := workflows.MapSource(ctx, gpumux.MapInput{})
		errs = append(errs, one, two, three)
		return fmt.Errorf("a step failed: %w", one)
	})
	require.Equal(t, gpumux.FaultCrash, workflows.FaultOf(env.GetWorkflowError()).Kind, "also where the workflow wrapped it")
	for i, err := range errs {
		var fault *gpumux.Fault
		require.ErrorAs(t, err, &fault)
		require.Equal(t, workflows.FaultOf(err), fault)
		failure := temporal.GetDefaultFailureConverter().ErrorToFailure(err)
		info := failure.GetApplicationFailureInfo()
		require.Equal(t, string(fault.Kind), info.GetType())
		require.True(t, info.GetNonRetryable())
		var sent gpumux.Fault
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(info.GetDetails(), &sent))
		require.Equal(t, *fault, sent)
		where, text := "gpumux task square at h1, process 12", "item 0 failed, and none may: boom; "
		if i == 2 {
			where, text = "gpumux", "invalid map input: task: is missing"
		}
		require.Equal(t, where, failure.GetCause().GetMessage())
		require.Empty(t, failure.GetCause().GetApplicationFailureInfo().GetType(), "a client prints no name of a type")
		require.True(t, strings.HasPrefix(failure.GetMessage(), text), failure.GetMessage())
		received := temporal.GetDefaultFailureConverter().FailureToError(failure)
		require.Equal(t, fmt.Sprintf("%s (type: %s, retryable: false): %s", failure.GetMessage(), fault.Kind, where), received.Error())
	}
	require.False(t, errors.As(errs[0], new(*gpumux.InputError)))
	require.True(t, slices.ContainsFunc(errs, func(err error) bool { return strings.Contains(err.Error(), "nothing to map over") }))
}
