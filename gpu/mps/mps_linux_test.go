package mps_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu/gputest"
	"github.com/gpumux/gpumux/gpu/mps"
	"github.com/gpumux/gpumux/gpu/mps/mpstest"
)

// The stand-in keeps to the contract. The real daemon has to on a machine with a GPU, in deploy/devserver/gpucheck.
func TestDaemon_Contract(t *testing.T) {
	m := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{}}})
	t.Setenv("PATH", m.Folder+":"+os.Getenv("PATH"))
	mpstest.Contract(t, mpstest.Host{
		Device: "GPU-00000000-0000-0000-0000-000000000000", Python: os.Getenv("GPUMUX_TEST_PYTHON"), Env: m.Env(),
	})
}

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
