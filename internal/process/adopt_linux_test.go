package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine may be so busy that a dead process is reaped seconds after its wire ended: it
// has not gone on for that.
func TestProcess_ADeathThatIsSeenLateIsOne(t *testing.T) {
	dead := exec.Command("sleep", "600")
	dead.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, startLeader(dead, nil))
	require.NoError(t, dead.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return !lives(dead.Process.Pid) }, time.Minute, time.Millisecond)
	out, err := newOutput()
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		c := &Process{PID: dead.Process.Pid, Out: out, Exited: make(chan struct{})}
		adopted := make(chan bool, 1)
		go func() { adopted <- c.Leaves() }()
		time.Sleep(10 * time.Second)
		await(dead.Process, nil)
		close(c.Exited)
		require.True(t, <-adopted)
	})
}

// Only a child of the worker's own is taken for a task process.
func TestAdopt_ItsOwnOnly(t *testing.T) {
	require.ErrorContains(t, (&Process{}).Adopt(os.Getpid()), "does not belong to the worker")
}
