package workers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
)

// What a task says may be what its items hold, and the log is a file that nobody
// encrypts.
func TestPrivate_KeepsTheTextsOfFaultsOutOfTheLog(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	log := redact(redact(zap.New(core)))
	fault := &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "marker"}
	wrapped := fmt.Errorf("around: %w", temporal.NewApplicationError("marker", "task_error", *fault))
	log.Warn("a call failed", zap.String("fault", fault.Error()), zap.String("pool", "gpu"))
	log.Warn("a call failed", zap.Error(fault))
	log.With(zap.String("fault", "marker")).Named("temporal").Warn("x")
	quiet(log).Error("Activity error.", "Error", wrapped, "Attempt", 1)
	quiet(log).Error("Activity error.", "fault", fault.Error())
	log.Warn("results wait for the store", zap.Error(fmt.Errorf("the disk is full")))
	text := ""
	for _, line := range lines.All() {
		text += fmt.Sprintln(line.Message, line.ContextMap())
	}
	require.NotContains(t, text, "marker")
	require.Contains(t, text, "pool:gpu")
	require.Contains(t, text, "the disk is full")
	require.Contains(t, text, "task_error (not in the log")
	require.Len(t, lines.All(), 6)
	require.False(t, redact(zap.NewNop()).Core().Enabled(zapcore.ErrorLevel))
}
