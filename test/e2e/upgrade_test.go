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
	enumspb "go.temporal.io/api/enums/v1"

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
		if tag, err := git("describe", "--tags", "--abbrev=0", "HEAD~"); err == nil {
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
	program := "cmd/gpumux-worker"
	if _, err := os.Stat(filepath.Join(source, program)); err != nil {
		program = "cmd/gpumux" // as it was called before
	}
	return release{build(source, source, program), build(source, source, "examples/service")}, release{now, build(top(t), into, "examples/service")}
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

// worker starts the worker of a release, as a version of a deployment unless build is "".
func (u *upgrading) worker(r release, build string) *program {
	u.t.Helper()
	temporal := ""
	if build != "" {
		temporal = "temporal: {deployment: gpus, build: " + build + "}\n"
	}
	name := fmt.Sprintf("worker-%d.yaml", time.Now().UnixNano())
	u.write(name, temporal+"store: file://"+u.path("store")+"\npools: [{name: cpu, devices: cpu, slots: 4}]\ntasks: {\"*\": {python_dir: .}, "+
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

// middle waits until a map is well under way.
func (u *upgrading) middle(n int) {
	u.t.Helper()
	rig.Wait(u.t, func() bool { return len(u.calls()) > n }, time.Minute, 20*time.Millisecond, "a part of the items ran")
}

// replaced starts a map on the worker of one release, and has that of another take its
// place in the middle.
func (u *upgrading) replaced(one, other release, n int) *program {
	u.t.Helper()
	first := u.worker(one, "")
	m := u.begin(one, "replaced", n)
	u.middle(n / 6)
	u.worker(other, "")
	stop(u.t, first)
	require.Less(u.t, len(u.calls()), n, "the second worker has something to do")
	return m
}

// refused reports whether a worker could not replay a map.
func (u *upgrading) refused(id string) bool {
	u.t.Helper()
	for all := u.site.client.GetWorkflowHistory(u.t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
		event, err := all.Next()
		require.NoError(u.t, err)
		if event.GetWorkflowTaskFailedEventAttributes().GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR {
			return true
		}
	}
	return false
}

// calledOnce requires that each of n items ran once.
func (u *upgrading) calledOnce(n int) {
	u.t.Helper()
	calls := u.calls()
	require.Len(u.t, calls, n)
	for item, times := range calls {
		require.Equal(u.t, 1, times, "item %s", item)
	}
}

// version is that of the deployment which a map is pinned to.
func (u *upgrading) version(id string) string {
	u.t.Helper()
	d, err := u.site.client.DescribeWorkflowExecution(u.t.Context(), id, "")
	require.NoError(u.t, err)
	return d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
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
			u.worker(mix.worker, "")
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
		m := u.replaced(before, after, n)
		u.done(m, "replaced", n)
		u.calledOnce(n)
	})

	// Its code may not know what the newer code did with the map. Then the map waits: it
	// goes on when the newer worker is there again, though the older one is, too.
	t.Run("in the middle of a map, back to the previous one", func(t *testing.T) {
		u := newUpgrading(t)
		m := u.replaced(after, before, n)
		rig.Wait(t, func() bool { return m.over() || u.refused("replaced") }, time.Minute, 50*time.Millisecond, "the map goes on or waits")
		if !m.over() {
			d, err := u.site.client.DescribeWorkflowExecution(t.Context(), "replaced", "")
			require.NoError(t, err)
			require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.GetWorkflowExecutionInfo().GetStatus())
			t.Log("the map waits for a newer worker")
			u.worker(after, "")
		}
		u.done(m, "replaced", n)
		u.calledOnce(n)
	})

	t.Run("with a deployment", func(t *testing.T) {
		u := newUpgrading(t)
		first := u.worker(before, "v1")
		u.site.current("v1")
		long := u.begin(before, "long", n)
		u.middle(n / 6)
		second := u.worker(after, "v2")
		u.site.current("v2")
		u.done(u.begin(before, "next", 40), "next", 40)
		u.site.current("v1")
		u.done(u.begin(after, "back", 40), "back", 40)
		u.done(long, "long", n)
		for id, version := range map[string]string{"long": "v1", "next": "v2", "back": "v1"} {
			require.Equal(t, version, u.version(id), id)
		}
		u.site.current("v2")
		stop(t, first)
		u.done(u.begin(after, "last", 40), "last", 40)
		stop(t, second)
	})
}
