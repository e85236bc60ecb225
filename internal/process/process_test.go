package process

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The number of a process that has ended may be that of another process's group by then.
func TestProcess_TheEndSparesAStrangerWithItsNumber(t *testing.T) {
	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, stranger.Start())
	ended := make(chan error, 1)
	go func() { ended <- stranger.Wait() }()
	out, err := newOutput()
	require.NoError(t, err)
	c := &Process{PID: stranger.Process.Pid, Out: out, Exited: make(chan struct{})}
	close(c.Exited)
	c.Signal(syscall.SIGTERM)
	c.Kill()
	// The first signal that reaches it is this one.
	require.NoError(t, stranger.Process.Signal(syscall.SIGINT))
	err = <-ended
	require.Equal(t, syscall.SIGINT, err.(*exec.ExitError).Sys().(syscall.WaitStatus).Signal())
}
