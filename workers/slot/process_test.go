package slot

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
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
	p := &process{pid: stranger.Process.Pid, out: out, exited: make(chan struct{})}
	close(p.exited)
	s := &Slot{process: p, state: Ready, log: zap.NewNop()}
	s.drop("test")
	s.process = p
	p.end(false, time.Second)
	// The first signal that reaches it is this one.
	require.NoError(t, stranger.Process.Signal(syscall.SIGINT))
	err = <-ended
	require.Equal(t, syscall.SIGINT, err.(*exec.ExitError).Sys().(syscall.WaitStatus).Signal())
}
