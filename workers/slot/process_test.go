package slot

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/workers/slot/wire"
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
	p := &process{child: &child{pid: stranger.Process.Pid, out: out, exited: make(chan struct{})}}
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

// sparing is a watch that counts how often it is asked what a process holds.
type sparing struct {
	unwatched
	times int
}

func (r *sparing) Held() int64 {
	r.times++
	return 1 << 20
}

// What a short item costs is mostly the messages that bring it, so many go in one frame; and nobody looks at the memory of a process
// without a budget.
func TestProcess_ShortItemsAreGivenManyAhead(t *testing.T) {
	for _, c := range []struct {
		pace        time.Duration
		ended, want int
	}{
		{0, 0, 1}, {time.Microsecond, 0, 8001}, {time.Microsecond, 1 << 20, mostAhead}, {100 * time.Microsecond, 0, 81},
		{time.Millisecond, 0, 9}, {time.Millisecond, 240, 11}, {time.Millisecond, 480, 21}, {time.Millisecond, 1 << 20, 65},
		{14 * time.Millisecond, 0, 2}, {14 * time.Millisecond, 100, 5}, {longItem, 1 << 20, 1}, {time.Minute, 0, 1},
	} {
		watched := &sparing{}
		p := &process{pace: c.pace, board: &wire.Board{}, memory: memory{Watched: watched}}
		require.Equal(t, c.want, p.ahead(c.ended), "%+v", c)
		require.Zero(t, watched.times)
		p.memory.tidy.Budget = 1 << 30
		p.ahead(c.ended)
		require.Equal(t, 1, watched.times)
	}
}
