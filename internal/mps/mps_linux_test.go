package mps_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/mps"
)

func TestListens_ToADaemonThatLives(t *testing.T) {
	dir, err := os.MkdirTemp("", "m") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv(mps.PipeVariable, dir)
	require.False(t, mps.Listens(mps.Pipe()))
	at := &net.UnixAddr{Name: filepath.Join(dir, "control"), Net: "unix"}
	listener, err := net.ListenUnix("unix", at)
	require.NoError(t, err)
	require.True(t, mps.Listens(mps.Pipe()))
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	require.FileExists(t, at.Name)
	require.False(t, mps.Listens(mps.Pipe()), "it was killed")
}
