package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// BenchmarkMap_OneItem compares a workflow that maps one item with one that runs one
// activity that does nothing, on the same server in the same run.
func BenchmarkMap_OneItem(b *testing.B) {
	s := newSite(b)
	s.worker("cpu", 1)
	w := worker.New(s.client, "service", worker.Options{MaxConcurrentActivityTaskPollers: 4, MaxConcurrentWorkflowTaskPollers: 4})
	w.RegisterActivityWithOptions(func(context.Context, int) (int, error) { return 0, nil }, activity.RegisterOptions{Name: "nothing"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "nothing", 1).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "activity"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "double", Ladder: []string{"cpu"}}, []int{1})
		return err
	}, workflow.RegisterOptions{Name: "map"})
	require.NoError(b, w.Start())
	defer w.Stop()
	run := func(b *testing.B, name string) {
		run, err := s.client.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, name)
		require.NoError(b, err)
		require.NoError(b, run.Get(b.Context(), nil))
	}
	run(b, "map")
	for _, name := range []string{"activity", "map"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				run(b, name)
			}
		})
	}
}

// BenchmarkMap_History reports what a map of a task that takes microseconds adds to
// histories: events and bytes of all its workflows.
func BenchmarkMap_History(b *testing.B) {
	s := newSite(b)
	s.worker("cpu", 2)
	for _, n := range []int64{10, 1000, 100_000} {
		b.Run(strconv.FormatInt(n, 10), func(b *testing.B) {
			var events, bytes, chunks int64
			for b.Loop() {
				run := s.start(gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}})
				var sum gpumux.Summary
				require.NoError(b, run.Get(b.Context(), &sum))
				added, size := s.recorded(run.GetID(), run.GetRunID())
				events, bytes, chunks = events+added, bytes+size, chunks+sum.Chunks
			}
			b.ReportMetric(float64(chunks)/float64(b.N), "chunks/op")
			b.ReportMetric(float64(events)/float64(b.N), "events/op")
			b.ReportMetric(float64(bytes)/float64(b.N), "bytes/op")
		})
	}
}

// recorded is the length and the size of a workflow's history and of its children's.
func (s *site) recorded(id, run string) (events, bytes int64) {
	s.t.Helper()
	answer, err := s.client.DescribeWorkflowExecution(s.t.Context(), id, run)
	require.NoError(s.t, err)
	info := answer.GetWorkflowExecutionInfo()
	events, bytes = info.GetHistoryLength(), info.GetHistorySizeBytes()
	history := s.client.GetWorkflowHistory(s.t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(s.t, err)
		if child := event.GetChildWorkflowExecutionStartedEventAttributes().GetWorkflowExecution(); child != nil {
			more, size := s.recorded(child.GetWorkflowId(), child.GetRunId())
			events, bytes = events+more, bytes+size
		}
	}
	return events, bytes
}
