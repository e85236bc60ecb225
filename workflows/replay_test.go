package workflows_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/workflows"
)

// Every history that a released version has left behind must still replay. The end-to-end tests write them:
//
//	cd deploy/devserver && go test ./e2e -run TestMap_ -record
//
// A change that breaks one needs workflow.GetVersion, not a new recording, unless no map of that kind can be running.
func TestReplay_RecordedHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			replayer := sdkworker.NewWorkflowReplayer()
			workflows.Register(replayer)
			logger := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(logger, file))
		})
	}
}
