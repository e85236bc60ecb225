package gpu

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatus_Shared(t *testing.T) {
	python := Process{PID: 1, Name: "/usr/bin/python3", Type: "compute"}
	client := Process{PID: 2, Type: "mps"}
	server := Process{PID: 3, Name: "nvidia-cuda-mps-server", Type: "compute"}
	screen := Process{PID: 4, Type: "graphics"}
	for name, test := range map[string]struct {
		processes []Process
		daemon    bool
		mps       string
		turns     int
	}{
		"not told":                {nil, false, "", 0},
		"one":                     {[]Process{python, screen}, false, "", 0},
		"two take turns":          {[]Process{python, python}, false, "", 2},
		"clients share a turn":    {[]Process{client, client}, true, "server", 0},
		"a server without":        {[]Process{server}, false, "server", 0},
		"one beside the server":   {[]Process{python, client, client, server}, true, "server", 2},
		"a daemon that may serve": {[]Process{}, true, "daemon", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := Status{Processes: test.processes}
			s.shared(test.daemon)
			require.Equal(t, test.mps, s.MPS)
			require.Equal(t, test.turns, s.TimeSliced)
		})
	}
}

func TestMPSDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "m") // paths of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
	require.False(t, mpsDaemon())
	at := &net.UnixAddr{Name: filepath.Join(dir, "control"), Net: "unix"}
	listener, err := net.ListenUnix("unix", at)
	require.NoError(t, err)
	require.True(t, mpsDaemon())
	listener.SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	require.FileExists(t, at.Name)
	require.False(t, mpsDaemon(), "it was killed")
}
