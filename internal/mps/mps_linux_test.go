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

func TestCulprits(t *testing.T) {
	for output, want := range map[string][]int{
		"": nil,
		"[2026-01-01 00:00:00.000 Server     9] Status of client {7, 1} is INACTIVE\n":             nil,
		"[2026-01-01 00:00:00.000 Server     9] Client process 7 encountered a fatal GPU error.\n": {7},
		"Client process 7 encountered a fatal GPU error.\nClient process 8 encountered a fatal GPU error.\n" +
			"Client process 7 encountered a fatal GPU error.\n": {7, 8},
	} {
		require.Equal(t, want, mps.Culprits(output), output)
	}
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

// What each driver's daemon knows; make nvidia-check writes what they answer.
func TestDaemon_OfEachDriver(t *testing.T) {
	for driver, knows := range map[string]struct{ status, limits bool }{
		"470": {}, "535": {limits: true}, "550": {true, true}, "555": {true, true},
	} {
		d := replay(t, driver)
		servers, err := d.Servers(t.Context())
		require.NoError(t, err)
		require.Empty(t, servers)
		ready, err := d.Ready(t.Context())
		require.NoError(t, err)
		require.True(t, ready)
		clients, err := d.Clients(t.Context(), 5)
		require.NoError(t, err, "a server that has ended")
		require.Empty(t, clients)
		_, err = d.Status(t.Context(), 5)
		require.Equal(t, !knows.status, errors.Is(err, mps.ErrCommand), "%s: %v", driver, err)
		require.Error(t, err)
		require.Equal(t, !knows.limits, errors.Is(d.Limits(t.Context()), mps.ErrCommand), driver)
		require.Equal(t, !knows.limits, errors.Is(d.Terminate(t.Context(), 5, 6), mps.ErrCommand), "they came together")
	}
}
