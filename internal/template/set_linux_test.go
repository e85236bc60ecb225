package template

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
)

// A refused template ends, and there is no other while the time lasts and the code stays.
func TestTemplates_ARefusalHoldsForItsCodeAndTime(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	ts, task, o := NewSet(zap.New(core)), launch.Task{}, session.Options{}.WithDefaults()
	defer ts.Close()
	refused := newTemplate(ts, task, o, "1")
	ts.known[keyOf(task, o)] = refused
	require.Same(t, refused, ts.current(task, o, "1"))
	for range 2 {
		refused.refuse("threads", unfitLimit)
	}
	require.True(t, refused.stopping())
	require.Equal(t, 1, seen.FilterMessageSnippet("get a new interpreter each").Len())
	require.Nil(t, ts.current(task, o, "1"))
	require.Equal(t, "2", ts.current(task, o, "2").edition, "what was changed is tried again")

	ts.known[keyOf(task, o)] = refused
	refused.refused = time.Now().Add(-time.Second)
	require.NotSame(t, refused, ts.current(task, o, "1"), "and so is what may have passed")
}
