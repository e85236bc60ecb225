package gpucheck

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// contracts are what gpumux builds on in an MPS daemon; check.py runs each by itself.
var contracts = map[string]func(*testing.T, gputest.MPSHost){
	"Clients": clients, "Limits": limits, "Fault": fault, "Quit": quit,
}

// contract holds an MPS daemon to all of them.
func contract(t *testing.T, h gputest.MPSHost) {
	for name, test := range contracts {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
}

// server is the daemon's only one.
func server(t *testing.T, d gputest.MPSDaemon) int {
	t.Helper()
	list, err := gputest.MPSServers(t.Context(), d.Daemon)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func clients(t *testing.T, h gputest.MPSHost) {
	d := h.Start(t)
	require.True(t, mps.Listens(d.Pipe))
	list, err := gputest.MPSServers(t.Context(), d.Daemon)
	require.NoError(t, err)
	require.Empty(t, list, "no server before the first client")

	a, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	b, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	server(t, d)
	a.Kill()
	require.Equal(t, "done", b.Say("alloc 1048576"), "an idle client that is killed harms no other")
}

func limits(t *testing.T, h gputest.MPSHost) {
	const limit = 1 << 30
	d := h.Start(t)
	c, output := h.Join(t, d.Daemon, mps.LimitVariable+"="+mps.Limit(limit))
	require.Equal(t, "done", output)
	free, total := c.Free()
	require.LessOrEqual(t, free, uint64(limit))
	t.Logf("figure: with a limit of 1 GiB CUDA tells a client %d MiB free of %d MiB", free>>20, total>>20)
	require.Equal(t, "error 2", c.Say("alloc %d", limit), "beside its context")
	other, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	require.Equal(t, "done", other.Say("alloc %d", limit), "who has no limit")
}

// A fatal fault reaches all clients of the server, which comes back when all of them have
// gone.
func fault(t *testing.T, h gputest.MPSHost) {
	d := h.Start(t)
	culprit, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	idle, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	third, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	require.Equal(t, "running", culprit.Say("illegal"))
	require.Equal(t, "error 700", culprit.Hear())
	require.Contains(t, idle.Say("free"), "error ")
	require.Contains(t, third.Say("free"), "error ")
	third.Kill()
	s := server(t, d)
	rig.Wait(t, func() bool { return d.Status(s) == "FAULT" }, gputest.MPSPatience, 20*time.Millisecond)
	_, output = h.Join(t, d.Daemon)
	require.Equal(t, "error 807", output)
	culprit.Kill()
	_, output = h.Join(t, d.Daemon)
	require.Equal(t, "error 807", output, "one of them is left")
	idle.Kill()
	rig.Wait(t, func() bool {
		c, output := h.Join(t, d.Daemon)
		c.Kill()
		return output == "done"
	}, gputest.MPSPatience, 20*time.Millisecond)
}

func quit(t *testing.T, h gputest.MPSHost) {
	d := h.Start(t)
	c, output := h.Join(t, d.Daemon)
	require.Equal(t, "done", output)
	s := server(t, d)
	c.Kill()
	_, err := gputest.AskMPS(t.Context(), d.Daemon, "quit")
	require.NoError(t, err)
	rig.Wait(t, func() bool { return !mps.Listens(d.Pipe) && !gputest.Runs(s) }, gputest.MPSPatience, 20*time.Millisecond)
	_, err = gputest.MPSServers(t.Context(), d.Daemon)
	require.ErrorIs(t, err, gputest.ErrNoMPS)
}
