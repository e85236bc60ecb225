package mps_test

import (
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

func TestDaemon_CulpritIsWhomTheLogBlames(t *testing.T) {
	d := mps.Daemon{Log: t.TempDir()}
	require.Zero(t, d.Culprit(0), "no log")
	require.Zero(t, d.LogSize())
	path := filepath.Join(d.Log, "server.log")
	const before = "[2026-01-01 00:00:00.000 Server 9] Client {5, 1} encountered a fatal GPU exception.\n"
	for log, want := range map[string]int{
		"[Server 9] New client 7 connected\n":                                                      0,
		"[Server 9] status of client {7, 1} is FAULT\n":                                            0,
		"[Server 9] Client {7, 1} encountered a fatal GPU exception.\n":                            7,
		"[Server 9] Client 7 faulted\n[Server 9] Client {7, 1}: fatal\n":                           7,
		"[Server 9] Client 7 fault\n[Server 9] Client 8 fault\n":                                   0,
		"[Server 9] Server is handling a fatal GPU exception.\n[Server 9] Client 7 disconnected\n": 0,
	} {
		require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
		from := d.LogSize()
		require.NoError(t, os.WriteFile(path, []byte(before+log), 0o600))
		require.Equal(t, want, d.Culprit(from), log)
	}
}

func TestDaemon_LongLogsAreEmptied(t *testing.T) {
	d := mps.Daemon{Log: t.TempDir()}
	server, control := filepath.Join(d.Log, "server.log"), filepath.Join(d.Log, "control.log")
	const last = "[Server 9] Client {7, 1} encountered a fatal GPU exception.\n"
	require.NoError(t, os.WriteFile(server, []byte(last), 0o600))
	d.EmptyLogs()
	require.EqualValues(t, len(last), d.LogSize())
	long := strings.Repeat("[Server 9] Client {5, 1} encountered a fatal GPU exception.\n[Server 9] New client 6 connected\n", 100_000)
	require.NoError(t, os.WriteFile(server, []byte(long+last), 0o600))
	require.NoError(t, os.WriteFile(control, []byte(long), 0o600))
	require.Equal(t, 7, d.Culprit(int64(len(long))))
	d.EmptyLogs()
	for _, path := range []string{server, control} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, info.Size())
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
