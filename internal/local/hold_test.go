package local_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// errAway is what the servers of these tests say.
var errAway = errors.New("the port is taken")

func noServer(context.Context, local.ServerOptions) (local.Server, error) { return nil, errAway }

// mapIn starts a map whose server says that it is away, after it has called in between.
func mapIn(t *testing.T, id string, between func()) error {
	t.Helper()
	task, err := local.FindTask("", config.Task{Command: []string{"cat"}})
	require.NoError(t, err)
	_, _, err = local.Map(t.Context(), local.Options{Task: task,
		Server: func(context.Context, local.ServerOptions) (local.Server, error) {
			between()
			return nil, errAway
		}}, &starter.Map{ID: id, Input: gpumux.MapInput{Range: &gpumux.Range{End: 1}}})
	return err
}

func TestMap_OneProcessPerFolder(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	err := mapIn(t, "embed-1", func() {
		unwanted := func() { t.Error("a second server in one folder") }
		err := mapIn(t, "embed-1", unwanted)
		require.ErrorContains(t, err, "this map runs already in process "+strconv.Itoa(os.Getpid()))
		require.ErrorAs(t, err, new(*local.UnavailableError))
		require.ErrorIs(t, mapIn(t, "other", func() {}), errAway, "another map has a folder of its own")
	})
	require.ErrorIs(t, err, errAway)
	require.ErrorIs(t, mapIn(t, "embed-1", func() {}), errAway, "the folder is free again")
}
