package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// paste runs a command line as a person would who copied it.
func (s *shell) paste(line string) string {
	s.t.Helper()
	path := programtest.Binary(s.t)
	bin := s.t.TempDir()
	require.NoError(s.t, exec.Command("ln", "-s", path, filepath.Join(bin, "gpumux")).Run())
	command := exec.Command("sh", "-c", line)
	command.Dir, command.Env = s.dir, append(slices.Clone(s.env), "PATH="+bin+":/usr/bin:/bin")
	out, err := command.CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", line, out)
	return string(out)
}

// found is the first group of a pattern in a text.
func found(t testing.TB, pattern, text string) string {
	t.Helper()
	groups := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, groups, "%s is not in\n%s", pattern, text)
	return groups[1]
}

// Every command that is printed works as it stands, in a shell that knows nothing of the
// server.
func TestPaste_WhatIsPrintedWorks(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("text.py", "def count(text):\n    return len(text.split())\n")
	s.write("texts.jsonl", "\"a b\"\n\"c\"\n")
	port := programtest.FreePort(t)
	dev := s.begin("dev", "--tasks", ".", "--port", port, "--headless")
	dev.ready()
	tryIt := found(t, `try it: +(gpumux .*)`, dev.stderr.String())
	require.Contains(t, s.paste(tryIt), "text:count")

	address := []string{"--address", "127.0.0.1:" + port}
	p := s.run(0, append([]string{"map", "text:count", "--in", "texts.jsonl", "--pool", "cpu", "--detach"}, address...)...)
	for _, line := range []string{`follow it +(.*)`, `look at it +(.*)`, `results +(.*)`} {
		s.paste(found(t, line, p.stderr.String()))
	}
	s.run(1, append([]string{"map", "step:odd", "--range", "0:4", "--pool", "cpu", "--id", "odd", "--out", "o.jsonl"}, address...)...)
	s.write("fixed", "")
	p = s.run(1, append([]string{"wait", "odd"}, address...)...)
	require.Contains(t, s.paste(found(t, `run the failed items again: (.*)`, p.stderr.String())), `"value":3`)
	s.paste(found(t, "`(gpumux ls .*?)`", s.run(2, append([]string{"show", "none"}, address...)...).stderr.String()))
	require.NoError(t, dev.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, dev.code())
}

// Workers may offer different things, and each is asked.
func TestWorkers_EachIsAsked(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.at(newSite(t))
	require.Contains(t, s.run(3, "workers").stderr.String(), "no worker serves")
	var workers []*program
	for _, pool := range []string{"large", "small"} {
		s.write(pool+".yaml", "store: file://"+s.path("store")+"\npools: [{name: "+pool+", devices: cpu, slots: 2}]\n"+
			"tasks: {only-"+pool+": {python: \"step.py:double\", mode: fresh}, both: {python: \"step.py:gate\"}}\n")
		workers = append(workers, s.begin("worker", "-f", pool+".yaml"))
	}
	rig.Wait(t, func() bool { return strings.Count(s.begin("workers").output(), "0/2") == 2 }, time.Minute, 100*time.Millisecond)
	listed := s.run(0, "workers").stdout.String()
	require.Regexp(t, `(?m) large .*both, only-large$`, listed)
	require.Regexp(t, `(?m) small .*both, only-small$`, listed)
	checked := s.run(0, "doctor").stdout.String()
	require.Regexp(t, `(?s)offers large .*offers small `, checked)

	for range 5 { // whichever worker a question to any would have reached
		p := s.run(3, "map", "only-small", "--range", "0:2", "--pool", "none", "--no-wait")
		require.Contains(t, p.stderr.String(), "give the pool small")
	}
	p := s.run(0, "map", "both", "--range", "5:7", "--pool", "large", "--detach")
	rig.Wait(t, func() bool { return strings.Contains(s.begin("workers").output(), "2/2") }, time.Minute, 100*time.Millisecond)
	s.write("open", "")
	s.run(0, "wait", strings.TrimSpace(p.stdout.String()))

	require.NoError(t, workers[0].Process.Signal(syscall.SIGKILL))
	require.Equal(t, -1, workers[0].code())
	p = s.run(0, "workers")
	require.Contains(t, p.stderr.String(), "has not answered")
	require.Contains(t, p.stdout.String(), " small ")
	require.NotContains(t, p.stdout.String(), " large ")
}

// output waits for the end and gives what was printed for programs.
func (p *program) output() string {
	p.code()
	return p.stdout.String()
}
