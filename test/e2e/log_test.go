package e2e

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux/workers"
)

// A service's own logger of slog has the lines of a worker and of its slots.
func TestWorker_LogsToSlog(t *testing.T) {
	s := newStage(t)
	var out bytes.Buffer
	w, err := workers.New(s.config, workers.Options{Client: s.Client, Runtime: t.TempDir(), StopTimeout: time.Second,
		Log: sdklog.NewStructuredLogger(slog.New(slog.NewJSONHandler(&out, nil)))})
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	_, err = s.wait(s.start(s.over("odd", 2)))
	require.NoError(t, err)
	require.NoError(t, w.Stop(t.Context()))
	lines := map[string]map[string]any{}
	for line := range bytes.Lines(out.Bytes()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line, &fields))
		lines[fields["msg"].(string)] = fields
	}
	require.Equal(t, "INFO", lines["worker started"]["level"])
	require.NotEmpty(t, lines["worker started"]["identity"])
	require.NotEmpty(t, lines["worker started"]["tasks"])
	require.Equal(t, "WARN", lines["item failed"]["level"])
	require.Equal(t, "step:odd", lines["task process ready"]["task"])
	require.Equal(t, "task_error", lines["item failed"]["kind"])
}
