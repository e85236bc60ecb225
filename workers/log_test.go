package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

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

// A logger of slog gets the lines of a worker with their fields, from its own level up.
func TestLog_Slog(t *testing.T) {
	c, err := load(t, site(t), "store: file:///tmp/none\npools: [{name: host, devices: cpu}]\ntasks: {embed: {python: \"embed.py:embed\"}}\n")
	require.NoError(t, err)
	var out bytes.Buffer
	to := log.NewStructuredLogger(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).With("service", "embedder"))
	w, err := New(c, Options{Inventory: onlyCPU(t), Log: to})
	require.NoError(t, err)
	at := w.log.With(zap.String("pool", "gpu")).Named("slot")
	at.Debug("too little")
	at.Info("a process started", zap.Int("pid", 7), zap.Duration("after", 2*time.Second), zap.Strings("tasks", []string{"a", "b"}))
	at.Error("no more", zap.Error(errors.New("gone")))
	var lines []map[string]any
	for line := range bytes.Lines(out.Bytes()) {
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(line, &fields))
		delete(fields, "time")
		lines = append(lines, fields)
	}
	require.Len(t, lines, 2)
	require.Equal(t, map[string]any{"level": "INFO", "msg": "a process started", "service": "embedder", "pool": "gpu", "logger": "slot",
		"pid": 7.0, "after": 2e9, "tasks": []any{"a", "b"}}, lines[0])
	require.Equal(t, map[string]any{"level": "ERROR", "msg": "no more", "service": "embedder", "pool": "gpu", "logger": "slot", "error": "gone"}, lines[1])
}

// A zap logger comes through the SDK's type as it was.
func TestLog_Zap(t *testing.T) {
	core, seen := observer.New(zapcore.InfoLevel)
	to := zapOf(Zap(zap.New(core, zap.AddCaller(), zap.Fields(zap.Bool("own", true))).Named("host")))
	require.False(t, to.Core().Enabled(zapcore.DebugLevel))
	to.Info("x", zap.Duration("after", time.Second))
	line := seen.All()[0]
	require.Equal(t, []zap.Field{zap.Bool("own", true), zap.Duration("after", time.Second)}, line.Context)
	require.Equal(t, "host", line.LoggerName)
	require.Contains(t, line.Caller.File, "log_test.go")
	require.False(t, zapOf(Zap(nil)).Core().Enabled(zapcore.ErrorLevel))
}
