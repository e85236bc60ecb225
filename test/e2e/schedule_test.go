package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
)

// A schedule of Temporal's starts a map with the input that the docs give it.
func TestSchedule_StartsAMap(t *testing.T) {
	s := newStage(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "words.py"), []byte("def count(text):\n    return len(text.split())\n"), 0o644))
	inputs := filepath.Join(s.dir, "store", "inputs")
	require.NoError(t, os.MkdirAll(inputs, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(inputs, "texts.jsonl"), []byte("\"one\"\n\"two three\"\n"), 0o644))
	s.work()
	page, err := os.ReadFile("../../docs/workflows.md")
	require.NoError(t, err)
	input := found(t, `(?s)temporal schedule create .*?--input '(.*?)'`, string(page))
	nightly, err := s.Client.ScheduleClient().Create(t.Context(), client.ScheduleOptions{
		ID: "nightly", Spec: client.ScheduleSpec{CronExpressions: []string{"0 2 29 2 *"}},
		Action: &client.ScheduleWorkflowAction{ID: "nightly", Workflow: gpumux.MapWorkflow, TaskQueue: gpumux.Queue, Args: []any{json.RawMessage(input)}},
	})
	require.NoError(t, err)
	require.NoError(t, nightly.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	id := ""
	s.until("it has started a map", func() bool {
		now, err := nightly.Describe(t.Context())
		if err == nil && len(now.Info.RecentActions) > 0 {
			id = now.Info.RecentActions[0].StartWorkflowResult.WorkflowID
		}
		return id != ""
	})
	h, err := s.Open(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "words:count", h.Task)
	_, err = s.wait(h)
	require.NoError(t, err)
	results := s.results(h)
	require.Len(t, results, 2)
	require.JSONEq(t, "2", string(results[1].Value))
}
