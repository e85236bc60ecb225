package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// picture is what a terminal shows of what it has been sent.
func picture(t *testing.T, sent *programtest.Screen) string {
	terminal := vt.NewEmulator(80, 24)
	defer terminal.Close()
	go func() { _, _ = io.Copy(io.Discard, terminal) }() // its answers
	_, err := terminal.Write([]byte(sent.String()))
	require.NoError(t, err)
	return terminal.String()
}

// With GPUMUX_PICTURE the terminal's bytes are kept in a file of that name.
func TestTop_OfARunningMap(t *testing.T) {
	t.Parallel()
	s, here, id := gated(t)
	p, shown, keys := here.onTerminal("top", "--every", "200ms")
	working := regexp.MustCompile(`2 of 2 slots busy(?s:.*)` + id + `(?s:.*)cpu/1 +busy +[0-9.]+MiB .*` + id)
	require.Eventually(t, func() bool { return working.MatchString(picture(t, shown)) }, time.Minute, 50*time.Millisecond)
	if file := os.Getenv("GPUMUX_PICTURE"); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(shown.String()), 0o644))
	}
	for i := range 2 {
		s.open(i)
	}
	require.Eventually(t, func() bool { return strings.Contains(picture(t, shown), "0 of 2 slots busy") }, time.Minute, 50*time.Millisecond)
	_, err := keys.Write([]byte("q"))
	require.NoError(t, err)
	require.NoError(t, p.Wait())

	require.Contains(t, here.run(2, "top").stderr.String(), "needs a terminal; for programs there are `gpumux workers --json`")
}

// A map's command on a terminal names the page of the map, and its server says nothing.
func TestTop_ALocalMapOnATerminal(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p, shown, _ := s.onTerminal("map", "step.py:double", "--range", "0:3", "--local", "--pool", "cpu", "--out", "r.jsonl")
	require.NoError(t, p.Wait())
	require.Len(t, s.lines(s.file("r.jsonl")), 3)
	require.Eventually(t, func() bool { return strings.Contains(shown.String(), "r.jsonl\r\n") }, time.Minute, 20*time.Millisecond)
	require.Regexp(t, `web UI while it runs: http://127.0.0.1:\d+/namespaces/default/workflows/step.py-double`, shown.String())
	require.NotContains(t, shown.String(), "IncreaseLevel")
}

// A terminal is asked nothing, so what was typed ahead is left to the shell.
func TestTop_NoOtherCommandAsksTheTerminal(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p, shown, _ := s.onTerminal("--version")
	require.NoError(t, p.Wait())
	require.Eventually(t, func() bool { return strings.HasSuffix(shown.String(), "\r\n") }, time.Minute, 20*time.Millisecond)
	require.NotContains(t, shown.String(), "\x1b")
}
