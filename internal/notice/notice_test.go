package notice

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A notice is said once in a line, and the log does not have it too.
func TestList_SaysANoticeOnce(t *testing.T) {
	seen, entries := observer.New(zap.DebugLevel)
	log := zap.New(seen)
	var texts []string
	list := &List{Say: func(text string) { texts = append(texts, text) }}
	for range 2 {
		list.Warn(log, "its budget holds by framework caps only", zap.String("pool", "gpu"), zap.String("task", "embed"), zap.String("why", "no process is listed"))
	}
	want := []string{"pool gpu, task embed: its budget holds by framework caps only; no process is listed"}
	require.Equal(t, want, texts)
	require.Equal(t, want, list.All())
	require.Zero(t, entries.Len())

	// Without anybody to say it to, the log has it, with its fields.
	list = &List{}
	list.Warn(log, "a GPU is left out", zap.String("device", "GPU-1"))
	require.Equal(t, []string{"device GPU-1: a GPU is left out"}, list.All())
	(*List)(nil).Warn(log, "a GPU is left out", zap.String("device", "GPU-1"))
	require.Equal(t, 2, entries.Len())
	require.Equal(t, map[string]any{"device": "GPU-1"}, entries.All()[0].ContextMap())
}
