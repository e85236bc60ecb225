package workers

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestQuiet_WarningsAndErrorsOnly(t *testing.T) {
	core, seen := observer.New(zapcore.DebugLevel)
	l := quiet(zap.New(core, zap.AddCaller()))
	l.Debug("a")
	l.Info("b")
	l.Warn("c", "Queue", "q")
	log.With(l, "Namespace", "n").Error("d", "Error", "e")
	log.With(l, "Namespace", "n").Info("e")
	l.Error("Activity error.", "Error", temporal.NewCanceledError()) // of a chunk that a map ends
	l.Error("Activity error.", "Error", fmt.Errorf("run: %w", context.Canceled))
	require.Equal(t, 2, seen.Len())
	require.Equal(t, map[string]any{"Queue": "q"}, seen.All()[0].ContextMap())
	require.Equal(t, map[string]any{"Namespace": "n", "Error": "e"}, seen.All()[1].ContextMap())
	require.Contains(t, seen.All()[0].Caller.File, "log_test.go")

	// A logger that takes errors alone stays so, and zap has nothing to complain of.
	var complaints bytes.Buffer
	core, seen = observer.New(zapcore.ErrorLevel)
	l = quiet(zap.New(core, zap.ErrorOutput(zapcore.AddSync(&complaints))))
	l.Warn("f")
	l.Error("g")
	require.Equal(t, 1, seen.Len())
	require.Empty(t, complaints.String())
}
