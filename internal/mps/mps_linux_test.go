package mps_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/mps"
)

func TestDaemon_ProgramThatIsMissing(t *testing.T) {
	_, err := mps.Daemon{Program: "/nonexistent/mps", Pipe: t.TempDir()}.Servers(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The kernel takes no path of a socket of more than 107 bytes.
func TestDaemon_LongestPipe(t *testing.T) {
	for extra, ok := range map[int]bool{0: true, 1: false} {
		root := t.TempDir()
		pipe := filepath.Join(root, strings.Repeat("p", mps.LongestPipe+extra-len(root)-1))
		require.NoError(t, os.Mkdir(pipe, 0o700))
		listener, err := net.Listen("unix", filepath.Join(pipe, "control_privileged"))
		require.Equal(t, ok, err == nil, "%v", err)
		if err == nil {
			require.NoError(t, listener.Close())
		}
	}
}

// replay is a program that answers as the daemon of a driver did, word for word.
func replay(t *testing.T, driver string) mps.Daemon {
	t.Helper()
	data, err := filepath.Abs("testdata/daemon-" + driver + ".txt")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "control")
	script := "#!/bin/sh\nread -r command\nawk -v c=\"> $command\" '/^> / { on = $0 == c; next } on && /^= / { exit $2 } on' " + data + "\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	return mps.Daemon{Program: program, Pipe: t.TempDir()}
}

// Whether each driver's daemon keeps clients to their memory; make nvidia-check writes
// what they answer.
func TestDaemon_OfEachDriver(t *testing.T) {
	for driver, limits := range map[string]bool{"470": false, "535": true, "550": true, "555": true} {
		d := replay(t, driver)
		servers, err := d.Servers(t.Context())
		require.NoError(t, err)
		require.Empty(t, servers)
		require.Equal(t, !limits, errors.Is(d.Limits(t.Context()), mps.ErrCommand), driver)
	}
}
