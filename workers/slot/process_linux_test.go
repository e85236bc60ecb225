package slot

import (
	"io"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/workers/slot/diagnosis"
)

// A machine may be so busy that a dead process is reaped seconds after its wire ended: it has not gone on for that.
func TestProcess_ADeathThatIsSeenLateIsOne(t *testing.T) {
	dead := exec.Command("sleep", "600")
	dead.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, startLeader(dead, taskSpawner()))
	require.NoError(t, dead.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return !lives(dead.Process.Pid) }, time.Minute, time.Millisecond)
	out, err := newOutput()
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		p := &process{child: &child{pid: dead.Process.Pid, out: out, exited: make(chan struct{})}}
		told := make(chan *diagnosis.Evidence, 1)
		go func() { told <- p.death(io.EOF) }()
		time.Sleep(10 * time.Second)
		p.ended = await(dead.Process)
		close(p.exited)
		e := <-told
		require.True(t, e.Exited)
		require.Equal(t, syscall.SIGTERM, e.Signal)
		require.Empty(t, e.Protocol)
	})
}
