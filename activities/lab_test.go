package activities

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
)

// lab runs activities with a store in memory.
type lab struct {
	t     *testing.T
	env   *testsuite.TestActivityEnvironment
	store *store.Store
	pool  *Pool
	light *Housekeeping
}

func newLab(t *testing.T, runner Runner) *lab {
	s, err := store.Open(t.Context(), "mem://")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &lab{t: t, env: suite.NewTestActivityEnvironment(), store: s, pool: &Pool{Runner: runner, Store: s, Recorders: record.New(s)}, light: &Housekeeping{Store: s}}
	return l
}
