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

// reading is a watch that counts how often it is asked what a process holds.
type reading struct {
	unwatched
	asked int
}

func (r *reading) Held() int64 {
	r.asked++
	return 1 << 20
}

// What a short item costs is mostly the messages that bring it, so many go in one frame; and nobody looks at the memory of a process
// without a budget.
func TestProcess_ShortItemsAreGivenManyAhead(t *testing.T) {
	for pace, want := range map[time.Duration]int{
		0: 1, time.Microsecond: mostAhead, 100 * time.Microsecond: 321, time.Millisecond: 33, 14 * time.Millisecond: 3, 40 * time.Millisecond: 2,
		longItem: 1, time.Minute: 1,
	} {
		watched := &reading{}
		p := &process{pace: pace, board: &wire.Board{}, memory: memory{Watched: watched}}
		require.Equal(t, want, p.ahead(), pace)
		require.Zero(t, watched.asked)
		p.memory.tidy.budget = 1 << 30
		p.ahead()
		require.Equal(t, 1, watched.asked)
	}
}
