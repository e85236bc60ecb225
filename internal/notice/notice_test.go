package notice

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A notice is said once in a line, whatever the level of the log, and the log does not
// have it too. Other entries go where they went.
func TestList_SaysWhatIsMarked(t *testing.T) {
	seen, entries := observer.New(zapcore.ErrorLevel)
	var said []string
	list := &List{Say: func(text string) { said = append(said, text) }}
	log := list.Log(zap.New(seen)).With(zap.String("pool", "gpu"))
	for range 2 {
		log.Warn("its budget holds by framework caps only", Mark, zap.String("task", "embed"), zap.String("why", "no process is listed"))
	}
	log.Warn("an item was slow")
	log.Error("a device is lost")
	want := []string{"pool gpu, task embed: its budget holds by framework caps only; no process is listed"}
	require.Equal(t, want, said)
	require.Equal(t, want, list.All())
	require.Equal(t, []string{"a device is lost"}, messages(entries))

	// Without anybody to say it to, the log has it, with its fields and without the mark.
	seen, entries = observer.New(zapcore.InfoLevel)
	list = &List{}
	list.Log(zap.New(seen)).Warn("a GPU is left out", Mark, zap.String("device", "GPU-1"))
	require.Equal(t, []string{"device GPU-1: a GPU is left out"}, list.All())
	require.Equal(t, map[string]any{"device": "GPU-1"}, entries.All()[0].ContextMap())
}

func messages(logs *observer.ObservedLogs) (all []string) {
	for _, e := range logs.All() {
		all = append(all, e.Message)
	}
	return all
}
