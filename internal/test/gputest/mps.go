package gputest

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/mps"
	"github.com/gpumux/gpumux/internal/test/rig"
)

//go:embed testdata/client.py
var mpsScript string

// MPSPatience is more than a daemon or a first context takes.
const MPSPatience = time.Minute

// MPSHost starts MPS daemons and their clients, which end with their test.
type MPSHost struct {
	// Device is the UUID of a GPU that nobody else uses, Python a Python 3. Default python3.
	Device, Python string
	// Env is added to the environment of clients and the daemon.
	Env []string
}

// MPSClient is a process with a context.
type MPSClient struct {
	PID int

	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// ErrNoMPS says that no daemon answers in the pipe directory.
var ErrNoMPS = errors.New("no MPS control daemon answers")

// AskMPS hands the daemon one command and returns the lines that it prints.
func AskMPS(ctx context.Context, d mps.Daemon, command string) ([]string, error) {
	cmd := exec.CommandContext(ctx, mps.Program)
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.Env = d.Environ()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' || r == '\r' })
	switch {
	case strings.Contains(string(out), "Cannot find MPS control daemon"):
		return nil, fmt.Errorf("%w in %s", ErrNoMPS, d.Pipe)
	case err != nil:
		return nil, fmt.Errorf("ask the MPS daemon in %s for %s: %w: %s", d.Pipe, command, err, strings.Join(lines, "; "))
	}
	return lines, nil
}

// MPSServers are the process numbers of the servers: none before the first client.
func MPSServers(ctx context.Context, d mps.Daemon) (list []int, err error) {
	lines, err := AskMPS(ctx, d, "get_server_list")
	for _, line := range lines {
		n, wrong := strconv.Atoi(strings.TrimSpace(line))
		list, err = append(list, n), errors.Join(err, wrong)
	}
	return list, err
}

// MPSDaemon is a daemon that runs.
type MPSDaemon struct {
	mps.Daemon
	t testing.TB
}

// Status is a server's, in the daemon's word.
func (d MPSDaemon) Status(server int) string {
	d.t.Helper()
	lines, err := AskMPS(d.t.Context(), d.Daemon, fmt.Sprintf("get_server_status %d", server))
	require.NoError(d.t, err)
	return strings.Join(lines, " ")
}

// Start starts a daemon and returns it when it answers. It is gone when the test ends.
func (h MPSHost) Start(t testing.TB) MPSDaemon {
	t.Helper()
	// The path of a socket is short.
	dir, err := os.MkdirTemp("", "mps")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d := MPSDaemon{mps.Daemon{Pipe: filepath.Join(dir, "pipe"), Device: h.Device}, t}
	require.NoError(t, os.Mkdir(d.Pipe, 0o700))
	argv := d.Argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = slices.Concat(os.Environ(), h.Env, d.Environ())
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), MPSPatience)
		defer cancel()
		_, _ = AskMPS(ctx, d.Daemon, "quit") // the test may have done so
		select {
		case <-ended:
		case <-ctx.Done():
			require.NoError(t, cmd.Process.Kill())
			t.Error("the daemon has not ended although it was told to and has no clients")
		}
	})
	rig.Wait(t, func() bool {
		_, err := MPSServers(t.Context(), d.Daemon)
		return err == nil
	}, MPSPatience, 20*time.Millisecond)
	return d
}

// Join starts a client of a daemon; the text is how making a context went.
func (h MPSHost) Join(t testing.TB, d mps.Daemon, env ...string) (*MPSClient, string) {
	t.Helper()
	c := &MPSClient{t: t, cmd: exec.Command(cmp.Or(h.Python, "python3"), "-u", "-c", mpsScript)}
	c.cmd.Env = append(append(os.Environ(), h.Env...), mps.PipeVariable+"="+d.Pipe, "CUDA_VISIBLE_DEVICES="+h.Device)
	c.cmd.Env, c.cmd.Stderr = append(c.cmd.Env, env...), os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.in, c.out = in, bufio.NewReader(out)
	require.NoError(t, c.cmd.Start())
	c.PID = c.cmd.Process.Pid
	t.Cleanup(c.Kill)
	return c, c.Say("begin")
}

// Say tells the client a line and returns its answer.
func (c *MPSClient) Say(format string, args ...any) string {
	c.t.Helper()
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	require.NoError(c.t, err)
	return c.Hear()
}

// Hear is the client's next line.
func (c *MPSClient) Hear() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err, "the client has ended")
	return strings.TrimSpace(line)
}

// Kill kills the client and returns when it is gone.
func (c *MPSClient) Kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// Free is CUDA's word about the memory.
func (c *MPSClient) Free() (free, total uint64) {
	c.t.Helper()
	output := c.Say("free")
	_, err := fmt.Sscan(output, &free, &total)
	require.NoError(c.t, err, "%s", output)
	return free, total
}

// Runs reports whether a process lives; a zombie does not.
func Runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
