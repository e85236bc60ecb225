package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/test/programtest"
)

// release has the programs of one revision: gpumux, and a service that embeds workflows.
type release struct{ gpumux, service string }

// releases are the previous one and this. The previous is GPUMUX_PREVIOUS, else the last
// tag, else the commit before.
func releases(t *testing.T) (before, after release) {
	t.Helper()
	git := func(args ...string) (string, error) {
		command := exec.Command("git", args...)
		command.Dir = top(t)
		out, err := command.Output()
		return strings.TrimSpace(string(out)), err
	}
	revision := os.Getenv("GPUMUX_PREVIOUS")
	if revision == "" {
		if tag, err := git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0", "HEAD~"); err == nil {
			revision = tag
		} else {
			revision = "HEAD~"
		}
	}
	commit, err := git("rev-parse", "--verify", revision+"^{commit}")
	if err != nil {
		rig.Because(t, rig.History, revision)
	}
	t.Logf("the previous program is that of %s, %s", revision, commit)
	source := t.TempDir()
	unpack := exec.Command("sh", "-ec", `git archive "$0" | tar -x -C "$1"`, commit, source)
	unpack.Dir = top(t)
	out, err := unpack.CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := func(source, into, name string) string {
		command := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(into, filepath.Base(name)), "./"+name)
		command.Dir = source
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", source, out)
		return filepath.Join(into, filepath.Base(name))
	}
	now := programtest.Binary(t)
	into := t.TempDir()
	return release{build(source, source, "cmd/gpumux-worker"), build(source, source, "examples/service")}, release{now, build(top(t), into, "examples/service")}
}

// upgrading is a folder with a worker's file, in a namespace of its own.
type upgrading struct {
	*shell
	site *site
}

func newUpgrading(t *testing.T) *upgrading {
	t.Helper()
	u := &upgrading{newShell(t), newSite(t)}
	u.env = append(u.env, "TEMPORAL_ADDRESS="+devservertest.Run(t).Address(), "TEMPORAL_NAMESPACE="+u.site.namespace)
	u.write("paced.py", "import os, time\n"+
		"def double(x):\n    time.sleep(0.03)\n    open(os.path.join(os.path.dirname(__file__), 'calls'), 'a').write('%s\\n' % x)\n    return 2 * x\n")
	return u
}

// worker starts the worker of a release.
func (u *upgrading) worker(r release) *program {
	u.t.Helper()
	name := fmt.Sprintf("worker-%d.yaml", time.Now().UnixNano())
	u.write(name, "store: file://"+u.path("store")+"\npools: [{name: cpu, devices: cpu, slots: 4}]\ntasks: {\"*\": {python_dir: .}, "+
		"\"text:language\": {python: \"text.py:language\", dir: \""+filepath.Join(top(u.t), "examples/python")+"\"}}\n")
	w := u.using(r).begin("worker", "-f", name)
	rig.Wait(u.t, func() bool { return strings.Contains(w.stderr.String(), "worker started") }, time.Minute, 20*time.Millisecond, &w.stderr)
	return w
}

// using gives commands of a release.
func (u *upgrading) using(r release) *shell {
	s := *u.shell
	s.program = r.gpumux
	return &s
}

// begin starts a map of n items whose results are in the file name.
func (u *upgrading) begin(client release, name string, n int) *program {
	u.t.Helper()
	return u.using(client).begin("map", "paced:double", "--range", fmt.Sprintf("0:%d", n), "--pool", "cpu", "--option", "chunk=5", "--id", name, "--out", name+".jsonl")
}

// done waits for the end of a map: every result is there, once and right.
func (u *upgrading) done(m *program, name string, n int) {
	u.t.Helper()
	require.Equal(u.t, 0, m.code(), "%s", &m.stderr)
	all := u.lines(u.file(name + ".jsonl"))
	require.Len(u.t, all, n)
	for i, line := range all {
		require.Equal(u.t, fmt.Sprint(2*i), string(line["value"]))
	}
}

// languages has the service of a release count the language of a text.
func (u *upgrading) languages(r release, text string) string {
	u.t.Helper()
	serving := exec.Command(r.service)
	serving.Env = u.env
	require.NoError(u.t, serving.Start())
	u.t.Cleanup(func() {
		_ = serving.Process.Kill()
		_ = serving.Wait()
	})
	asking := exec.Command(r.service, text)
	asking.Env = u.env
	out, err := asking.CombinedOutput()
	require.NoError(u.t, err, "%s", out)
	return string(out)
}

func stop(t testing.TB, w *program) {
	t.Helper()
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, w.code(), "%s", &w.stderr)
}

// The previous release and this one work together, whichever side is upgraded first, and
// whichever goes back alone.
func TestLong_Upgrade(t *testing.T) {
	before, after := releases(t)
	for name, mix := range map[string]struct{ worker, client, service release }{
		"worker first": {after, before, before}, "client first": {before, after, before}, "service first": {before, before, after},
		"worker last": {before, after, after}, "client last": {after, before, after}, "service last": {after, after, before},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpgrading(t)
			u.worker(mix.worker)
			u.done(u.begin(mix.client, "each", 40), "each", 40)
			client := u.using(mix.client)
			require.Contains(t, client.run(0, "workers").stdout.String(), "cpu")
			require.Contains(t, client.run(0, "show", "each").stdout.String(), "succeeded  40\n")
			require.JSONEq(t, `{"English": 1}`, u.languages(mix.service, "the house and the garden"))
		})
	}

	const n = 600
	t.Run("in the middle of a map, to the next release", func(t *testing.T) {
		u := newUpgrading(t)
		first := u.worker(before)
		m := u.begin(before, "replaced", n)
		rig.Wait(t, func() bool { return len(u.calls()) > n/6 }, time.Minute, 20*time.Millisecond, "a part of the items ran")
		u.worker(after)
		stop(t, first)
		require.Less(t, len(u.calls()), n, "the second worker has something to do")
		u.done(m, "replaced", n)
		for item, times := range u.calls() {
			require.Equal(t, 1, times, "item %s", item)
		}
	})
}
