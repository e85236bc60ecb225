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

// lined is a template that has just been made.
func lined() (*Set, *template, *observer.ObservedLogs) {
	core, seen := observer.New(zap.InfoLevel)
	ts, l := NewSet(zap.New(core)), &lineage{edition: "1"}
	l.now = newTemplate(ts, l, launch.Task{}, session.Options{})
	return ts, l.now, seen
}

// What may have been a moment's load is tried again; what the import left is not, until
// the file changes.
func TestTemplates_FailuresThatMayPassAreForgotten(t *testing.T) {
	ts, child, seen := lined()
	for range strikeLimit {
		ts.distrust(child, "too slow", false)
	}
	l := child.lineage
	require.True(t, child.stopping())
	require.True(t, l.refused("1", time.Now()))
	require.False(t, l.refused("2", time.Now()))
	require.False(t, l.refused("1", time.Now().Add(refusalLimit)))
	said := seen.FilterMessageSnippet("get a new interpreter each")
	require.Equal(t, 1, said.Len())
	require.NotContains(t, said.All()[0].Message, "cannot")

	ts, child, _ = lined()
	ts.refuse(child, "threads", false)
	require.True(t, child.lineage.refused("1", time.Now().Add(1000*time.Hour)))
	require.False(t, child.lineage.refused("2", time.Now()))
}

// What a template before did wrong is no matter of the one that there is now.
func TestTemplates_OneThatIsReplacedIsNotAsked(t *testing.T) {
	ts, old, seen := lined()
	l := old.lineage
	l.now = newTemplate(ts, l, launch.Task{}, session.Options{})
	for range strikeLimit {
		ts.distrust(old, "too slow", true)
		ts.refuse(old, "threads", false)
	}
	require.Empty(t, l.refusal)
	require.Zero(t, l.strikes)
	require.False(t, l.now.stopping())
	require.Zero(t, seen.Len())
}
