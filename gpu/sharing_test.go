package gpu

import (
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
