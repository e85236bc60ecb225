package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// A map of this command alone has workers that another command started, as on other
// hosts. Both end with it, and nothing is left.
func TestOthers_WorkersOfACommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("place.py", `import os, time
def place(item):
    while not os.path.exists("open"): time.sleep(0.01)
    return [item, os.getppid()]
`)
	gpumux := programtest.Binary(t)
	p := s.begin("map", "place.py:place", "--range", "0:200", "--local", "--no-worker", "--pool", "cpu", "--slots", "2", "--listen", "127.0.0.1",
		"--workers", "echo they start; sh -c 'for i in 1 2; do "+gpumux+" worker -f {} 2>worker$i.log & done; wait'; echo they have ended", "--out", "r.jsonl")
	logs := []string{"worker1.log", "worker2.log"}
	for _, log := range logs {
		rig.Wait(t, func() bool { text, _ := os.ReadFile(s.path(log)); return bytes.Contains(text, []byte(`"serving"`)) }, time.Minute, 20*time.Millisecond,
			"%s", &p.stderr)
	}
	s.write("open", "")
	require.Zero(t, p.code(), "%s", &p.stderr)
	require.Len(t, s.lines(s.file("r.jsonl")), 200)
	require.Regexp(t, `workers of other hosts: gpumux worker -f \S+/worker.json\n(?s:.*)they start\n(?s:.*)they have ended`, p.stderr.String())
	require.NotContains(t, s.file("r.jsonl"), fmt.Sprintf(",%d]", p.Process.Pid), "the command itself ran none")
	for _, log := range logs {
		require.Contains(t, s.file(log), "the connection file is gone, as when its map has ended; stopping")
		require.NotContains(t, s.file(log), `"level":"error"`)
	}
	require.Empty(t, s.state())
}

// The file of workers says what the command's own would be.
func TestOthers_TheirFile(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.NoError(t, os.MkdirAll(s.path("in here"), 0o755))
	s.write("in here/odd.py", "def odd(item): return item\n")
	p := s.begin("map", "in here/odd.py:odd", "--range", "0:3", "--local", "--no-worker", "--pool", "cpu", "--memory", "1100MiB",
		"--pass-env", "HF_TOKEN", "--start-timeout", "90s", "--out", "r.jsonl", "--workers", `cp {} "seen file"; sleep 600`)
	rig.Wait(t, func() bool { _, err := os.Stat(s.path("seen file")); return err == nil }, time.Minute, 20*time.Millisecond)
	text := s.file("seen file")
	for _, want := range []string{`"connect": "temporal.toml"`, `"slots": "cores"`, `"memory": "1153433600"`, `"python": "in here/odd.py:odd"`, `"HF_TOKEN"`,
		`"start": 90`, `"dir": "` + s.dir + `"`, `"devices": [`} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "store")
	require.NoError(t, os.Rename(s.path("seen file"), filepath.Join(s.state()[0], "again.json")))
	worker := s.begin("worker", "-f", filepath.Join(s.state()[0], "again.json"))
	require.Equal(t, 0, p.code(), p.stderr.String())
	require.Equal(t, 0, worker.code(), worker.stderr.String())
	require.Len(t, s.lines(s.file("r.jsonl")), 3)
}

// The command that starts workers ends by itself, and with the map's command however that
// ends.
func TestOthers_TheEndOfTheirCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	base := []string{"map", "step.py:double", "--range", "0:20", "--local", "--pool", "cpu", "--out", "r.jsonl"}
	line := func(more ...string) []string { return slices.Concat(base, more) }
	for _, wrong := range []struct {
		args []string
		says string
	}{
		{line("--no-worker"), "--no-worker leaves the map without any: give --workers, or --listen and start some"},
		{line("--workers", ""), "--workers is empty"},
		{line("--listen", "no.such.host"), `--listen "no.such.host": write it as HOST or HOST:PORT`},
		{[]string{"map", "step", "--range", "0:3", "--workers", "true"}, "--workers goes with --local; the workers of a server are there already"},
	} {
		require.Contains(t, s.run(2, wrong.args...).stderr.String(), wrong.says)
	}
	p := s.run(3, line("--no-worker", "--workers", "echo no such partition; exit 7")...)
	require.Regexp(t, `no such partition\n(?s:.*)the command of --workers ended, and with it the map's workers: exit status 7`, p.stderr.String())
	p = s.run(3, line("--no-worker", "--workers", "true")...)
	require.Contains(t, p.stderr.String(), "the command of --workers ended, and with it the map's workers: exit status 0")
	gated := line("--workers", "exit 7")
	gated[1] = "step.py:gate"
	p = s.begin(gated...)
	rig.Wait(t, func() bool {
		return strings.Contains(p.stderr.String(), "the command of --workers ended: exit status 7; the map goes on")
	}, time.Minute,
		20*time.Millisecond, "%s", &p.stderr)
	s.write("open", "")
	require.Zero(t, p.code(), "%s", &p.stderr)
	require.NoError(t, os.Remove(s.path("open")))

	slow := line("--workers", "echo $$ > pid; trap 'echo told > told; exit' TERM; while read -r line; do :; done; echo over > over")
	slow[1] = "step.py:gate"
	killed := s.begin(slow...)
	rig.Wait(t, func() bool { _, err := os.Stat(s.path("pid")); return err == nil }, time.Minute, 20*time.Millisecond)
	require.NoError(t, killed.Process.Kill())
	rig.Wait(t, func() bool { _, err := os.Stat(s.path("over")); return err == nil }, time.Minute, 20*time.Millisecond, "its input ended")
	require.NoError(t, os.Remove(s.path("pid")))

	stopped := s.begin(slow...)
	rig.Wait(t, func() bool { _, err := os.Stat(s.path("pid")); return err == nil }, time.Minute, 20*time.Millisecond)
	require.NoError(t, stopped.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 130, stopped.code(), stopped.stderr.String())
	require.Equal(t, "told\n", s.file("told"))
}
