package workflows_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/workflows"
)

// Every history that a released version has left behind must still replay; those of
// releases are in folders of their own. docs/upgrades.md says how a release records them.
//
// A change that breaks one needs workflow.GetVersion, not a new recording, unless no map
// of that kind can be running.
func TestReplay_RecordedHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	released, err := filepath.Glob("testdata/v*/*.json")
	require.NoError(t, err)
	files = append(files, released...)
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			data, err := os.Open(file)
			require.NoError(t, err)
			defer data.Close()
			past, err := client.HistoryFromJSON(data, client.HistoryJSONOptions{})
			require.NoError(t, err)
			began := past.Events[0].GetWorkflowExecutionStartedEventAttributes()
			replayer := sdkworker.NewWorkflowReplayer()
			workflows.Register(replayer)
			logger := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
			require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(logger, past, sdkworker.ReplayWorkflowHistoryOptions{
				// A segment's name begins with the name of its map.
				OriginalExecution: workflow.Execution{ID: began.GetWorkflowId(), RunID: began.GetOriginalExecutionRunId()},
			}))
		})
	}
}
