package memory

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/session"
)

// When the host runs out of memory, only the process that holds most is ended, with or
// without a budget.
func TestWatch_KeepsTheHostAlive(t *testing.T) {
	t.Parallel()
	w := newWatch(nil, zap.NewNop())
	host := gpu.Memory{Total: 4 << 30, Free: 1 << 30}
	w.host = func() (gpu.Memory, error) { return host, nil }
	ended := make(chan session.Over, 10)
	follow := func(budget gpumux.Size, line string) *watched {
		cmd := exec.Command("sh", "-c", line)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
		f := w.Follow(gpu.CPU, cmd.Process.Pid, budget, func(o session.Over) { ended <- o }).(*watched)
		f.Busy(true)
		return f
	}
	// tail keeps its input in memory because nobody reads its output.
	small := follow(0, "sleep 600")
	large := follow(8<<30, "head -c 400000000 /dev/zero | tail -c 400000000 | sleep 600")
	w.mu.Lock()
	grown := func() bool { tree := w.census.Tree(large.pid); return tree != nil && tree.Sum() > 390_000_000 }
	w.mu.Unlock()
	require.Eventually(t, func() bool { w.round(); w.mu.Lock(); defer w.mu.Unlock(); return grown() }, time.Minute, 10*time.Millisecond)
	require.Empty(t, ended, "there is room")
	host.Free = 300 << 20
	require.Equal(t, watchNear, w.round(), "it looks often while that is near")
	require.Empty(t, ended)

	host.Free = 0
	for range 5 {
		w.round()
	}
	require.Len(t, ended, 1, "one at a time")
	over := <-ended
	require.EqualValues(t, 1, over.Left, "the host's lack, not a budget that was passed")
	require.InDelta(t, 400e6, float64(over.Held), 50e6)
	large.Close()
	for range 5 {
		w.round()
	}
	require.Empty(t, ended, "what holds little is not what the host lacks")
	small.Close()
}

func TestWatch_ReadsTheHost(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{})
	require.NoError(t, err)
	defer inventory.Close()
	w := newWatch(nil, zap.NewNop())
	require.NoError(t, w.guardHost(inventory))
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		require.Nil(t, w.host)
		return
	}
	host, err := w.host()
	require.NoError(t, err)
	require.Greater(t, host.Total, host.Free)
	require.Positive(t, host.Free)
}

func TestWatch_TheReserveIsWhatTheVariableSays(t *testing.T) {
	inventory, err := gpu.Open(t.Context(), gpu.Options{})
	require.NoError(t, err)
	defer inventory.Close()
	guarded := func(text string) (*watch, error) {
		t.Setenv(ReserveVariable, text)
		w := newWatch(nil, zap.NewNop())
		return w, w.guardHost(inventory)
	}
	w, err := guarded("1TiB")
	require.NoError(t, err)
	if w.host != nil {
		require.True(t, w.protectHost(), "no host has so much free")
	}
	w, err = guarded("0")
	require.NoError(t, err)
	require.False(t, w.protectHost())
	_, err = guarded("much")
	require.ErrorContains(t, err, `GPUMUX_HOST_RESERVE: `)
	require.ErrorContains(t, err, "and 0 for none")
}
