package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/test/programtest"
)

// onTerminal starts gpumux on a terminal of 80×24, and returns what is shown there and
// where keys go.
func (s *shell) onTerminal(args ...string) (p *exec.Cmd, shown *programtest.Screen, keys io.Writer) {
	s.t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	require.NoError(s.t, err)
	require.NoError(s.t, unix.IoctlSetWinsize(int(control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(s.t, err)
	path := programtest.Binary(s.t)
	p, shown = exec.Command(path, args...), &programtest.Screen{}
	p.Dir, p.Env, p.Stdin, p.Stdout, p.Stderr = s.dir, append(s.env, "TERM=xterm-256color"), screen, screen, screen
	require.NoError(s.t, p.Start())
	require.NoError(s.t, screen.Close())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(shown, control) // until nobody has the terminal open
	}()
	s.t.Cleanup(func() { _ = p.Process.Kill(); <-read; _ = control.Close() })
	return p, shown, control
}

// With GPUMUX_PICTURE the terminal's bytes are kept in a file of that name.
func TestTop_OfARunningMap(t *testing.T) {
	t.Parallel()
	s, here, id := gated(t)
	p, shown, keys := here.onTerminal("top", "--every", "200ms")
	working := regexp.MustCompile(`2 of 2 slots busy(?s:.*)` + id + `(?s:.*)cpu/1 +busy +[0-9.]+MiB .*` + id)
	require.Eventually(t, func() bool { return working.MatchString(shown.String()) }, time.Minute, 20*time.Millisecond)
	if picture := os.Getenv("GPUMUX_PICTURE"); picture != "" {
		require.NoError(t, os.WriteFile(picture, []byte(shown.String()), 0o644))
	}
	for i := range 2 {
		s.open(i)
	}
	require.Eventually(t, func() bool { return strings.Contains(shown.String(), "0 of 2 slots busy") }, time.Minute, 20*time.Millisecond)
	_, err := keys.Write([]byte("q"))
	require.NoError(t, err)
	require.NoError(t, p.Wait())

	require.Contains(t, here.run(2, "top").stderr.String(), "needs a terminal; for programs there are `gpumux workers --json`")
}

// BenchmarkTop_AHundredWorkers is the share of a core that top takes beside a hundred
// simulated workers of eight slots.
func BenchmarkTop_AHundredWorkers(b *testing.B) {
	s := devservertest.Run(b)
	namespace := devservertest.Namespace(b)
	c := devservertest.Dial(b, s, namespace)
	for i := range 100 {
		identity := fmt.Sprintf("node-%02d/4711", i)
		pool := contract.PoolInfo{Name: "gpu", Slots: 8, Busy: 8, Memory: 8 << 30}
		for n := range 8 {
			pool.Seats = append(pool.Seats, contract.SlotInfo{Name: fmt.Sprintf("gpu/%d", n), Device: fmt.Sprintf("GPU-%032d", i), State: "busy",
				Task: "embed", Map: "embed-3fa92c01d4e5", PID: 100 + n, Held: gpumux.Size(n) << 30, Items: int64(n)})
		}
		offer := contract.WorkerInfo{Identity: identity, Pools: []contract.PoolInfo{pool}}
		for _, queue := range []string{contract.WorkerQueue(identity), gpumux.Queue} {
			w := worker.New(c, queue, worker.Options{Identity: identity, DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 1})
			(&activities.Housekeeping{Describe: func() contract.WorkerInfo { return offer }}).RegisterDescribe(w)
			w.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "unused"})
			require.NoError(b, w.Start())
			b.Cleanup(w.Stop)
		}
	}
	dir := b.TempDir()
	here := &shell{t: b, dir: dir, env: append(os.Environ(), "TEMPORAL_ADDRESS="+s.Address(), "TEMPORAL_NAMESPACE="+namespace)}
	p, shown, keys := here.onTerminal("top")
	require.Eventually(b, func() bool { return strings.Contains(shown.String(), "100 workers, 800 of 800 slots busy") }, time.Minute, 50*time.Millisecond)
	began, used := time.Now(), cpuTime(b, p.Process.Pid)
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(100*float64(cpuTime(b, p.Process.Pid)-used)/float64(time.Since(began)), "%core")
	_, err := keys.Write([]byte("q"))
	require.NoError(b, err)
	require.NoError(b, p.Wait())
}

// cpuTime is what a process has used so far.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	const tick = time.Second / 100
	fields := stat(pid)
	require.NotEmpty(t, fields, "the process is gone")
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	require.NoError(t, errors.Join(err1, err2))
	return time.Duration(user+system) * tick
}
