package e2e

import (
	"encoding/json"
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

// TestDev_ADay walks through the commands that a person uses beside `gpumux dev`.
func TestDev_ADay(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	port, uiPort := programtest.FreePort(t), programtest.FreePort(t)
	dev := s.begin("dev", "--tasks", ".", "--port", port, "--ui-port", uiPort, "--slots", "8")
	dev.ready()
	require.Contains(t, dev.stderr.String(), "step:double")
	rival := s.run(3, "dev", "--port", port, "--ui-port", programtest.FreePort(t), "--data", s.path("other"))
	require.Contains(t, rival.stderr.String(), "give another port for the server")
	s.env = append(s.env, "TEMPORAL_ADDRESS=127.0.0.1:"+port, "GPUMUX_UI=http://127.0.0.1:"+uiPort)

	p := s.run(0, "map", "step:double", "--range", "21:22", "--pool", "cpu", "--out", "-", "--quiet")
	require.Equal(t, "{\"index\":0,\"value\":42}\n", p.stdout.String())
	require.Empty(t, p.stderr.String())
	p = s.run(1, "map", "step:odd", "--range", "3:4", "--pool", "cpu", "--out", "-")
	require.Contains(t, p.stdout.String(), `{"index":0,"fault":{`)
	require.Contains(t, p.stderr.String(), "ValueError: 3 is odd")

	p = s.run(0, "map", "step:gate", "--range", "0:9", "--pool", "cpu", "--option", "chunk=1", "--option", "window=6", "--detach")
	id := strings.TrimSpace(p.stdout.String())
	require.Contains(t, p.stderr.String(), "gpumux wait "+id)
	rig.Wait(t, func() bool { return len(s.calls()) == 5+1 }, time.Minute, 20*time.Millisecond) // and that of double
	p = s.run(0, "show", id)
	require.Contains(t, p.stdout.String(), "RunChunk")
	require.Contains(t, p.stdout.String(), "http://127.0.0.1:"+uiPort)
	p = s.run(2, "results", id)
	require.Contains(t, p.stderr.String(), "still runs")
	s.run(0, "pause", id)
	require.Contains(t, s.run(0, "show", id).stdout.String(), "paused")
	require.Contains(t, s.run(0, "ls").stdout.String(), "paused")
	s.run(0, "resume", id)

	follower := s.begin("map", "step:gate", "--range", "0:9", "--pool", "cpu", "--option", "chunk=2") // chunk is no part of the ID
	require.Eventually(t, func() bool { return strings.Contains(follower.stderr.String(), "runs already") }, time.Minute, 20*time.Millisecond)
	require.Contains(t, follower.stderr.String(), "with the options that it was started with")
	require.NoError(t, follower.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, follower.code())
	require.Contains(t, follower.stderr.String(), "gpumux cancel "+id)

	s.write("open", "")
	p = s.run(0, "wait", id, "--json")
	require.Contains(t, p.stdout.String(), `"succeeded": 9`)
	p = s.run(0, "results", id, "--values")
	require.Equal(t, "0\n1\n2\n3\n4\n5\n6\n7\n8\n", p.stdout.String())
	require.Contains(t, s.run(2, "cancel", "nope").stderr.String(), id)

	p = s.run(1, "map", "step:odd", "--range", "0:6", "--pool", "cpu", "--id", "odd", "--out", "o.jsonl")
	require.Contains(t, p.stderr.String(), "--retry")
	require.Equal(t, s.failedLines("o.jsonl"), s.run(1, "results", "odd", "--failed").stdout.String())
	s.write("fixed", "")
	s.run(0, "retry", "odd", "--out", "o2.jsonl")
	require.Len(t, s.lines(s.file("o2.jsonl")), 6)
	require.Contains(t, s.run(0, "retry", "odd", "--out", "o3.jsonl").stderr.String(), "nothing to retry")
	require.Equal(t, s.file("o2.jsonl"), s.file("o3.jsonl"))
	p = s.run(2, "map", "step:odd", "--range", "0:7", "--pool", "cpu", "--id", "odd")
	require.Contains(t, p.stderr.String(), "is taken")

	p = s.run(3, "map", "step:double", "--range", "0:2", "--pool", "gpu", "--no-wait")
	require.Contains(t, p.stderr.String(), "give the pool cpu")
	p = s.run(2, "map", "dubble", "--range", "0:2", "--pool", "cpu")
	require.Contains(t, p.stderr.String(), "step:double")
	require.Equal(t, 0, s.begin("doctor").code())

	var listed []struct{ ID, Status string }
	rig.Wait(t, func() bool {
		listed = nil
		p := s.run(0, "ls", "--json")
		return json.Unmarshal([]byte(p.stdout.String()), &listed) == nil && len(listed) == 5
	}, time.Minute, 100*time.Millisecond, "run twice, gate, odd and dubble are listed")

	require.NoError(t, dev.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, dev.code(), dev.stderr.String())
	rig.Wait(t, func() bool { return len(children(t, s.dir)) == 0 }, time.Minute, 20*time.Millisecond,
		"processes outlived dev")
	p = s.run(3, "ls")
	require.Contains(t, p.stderr.String(), "127.0.0.1:"+port)

	again := s.begin("dev", "--tasks", ".", "--port", port, "--ui-port", uiPort, "--headless")
	again.ready()
	require.Len(t, s.lines(s.run(0, "results", "odd").stdout.String()), 6, "what maps have done is there again")
}

// TestDev_SaysWhatHoldsAMapUp keeps the results file from being written.
func TestDev_SaysWhatHoldsAMapUp(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	port := programtest.FreePort(t)
	dev := s.begin("dev", "--tasks", ".", "--port", port, "--headless", "--data", "data")
	dev.ready()
	require.Contains(t, dev.stderr.String(), "other users of this machine can run tasks as you; --listen 127.0.0.1 keeps them out")
	s.env = append(s.env, "TEMPORAL_ADDRESS=127.0.0.1:"+port)
	waiting := s.begin("map", "step:gate", "--range", "0:6", "--pool", "cpu", "--option", "chunk=1", "--out", "r.jsonl")
	var parts []string
	rig.Wait(t, func() bool {
		parts, _ = filepath.Glob(s.path("data/store/maps/*/*/*.parts"))
		return len(parts) == 1 && storedItems(t, s.path("data/store")) > 0
	}, time.Minute, 20*time.Millisecond, "the first items are stored")
	obstacle := filepath.Join(filepath.Dir(parts[0]), "results.bytes.jsonl")
	require.NoError(t, os.MkdirAll(filepath.Join(obstacle, "full"), 0o755))
	s.write("open", "")
	require.Eventually(t, func() bool { return strings.Contains(waiting.stderr.String(), "is tried again: ") }, time.Minute, 20*time.Millisecond)
	require.Contains(t, waiting.stderr.String(), "MergeParts has failed")
	away := *s // a store that cannot be opened hides no map
	away.env = append(slices.Clone(s.env), "GPUMUX_STORE=file:///dev/null/store")
	name := filepath.Base(filepath.Dir(filepath.Dir(parts[0])))
	require.Contains(t, away.run(0, "ls").stdout.String(), name)
	require.Contains(t, away.run(0, "show", name).stdout.String(), "MergeParts")
	require.NoError(t, os.RemoveAll(obstacle))
	require.Equal(t, 0, waiting.code(), &waiting.stderr)
	require.Len(t, s.lines(s.file("r.jsonl")), 6)
	require.Equal(t, 1, strings.Count(waiting.stderr.String(), "is tried again"), &waiting.stderr)
}

// What ran when it was killed runs again without a wait for heartbeats.
func TestDev_TakesOverFromOneThatWasKilled(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	port := programtest.FreePort(t)
	s.env = append(s.env, "TEMPORAL_ADDRESS=127.0.0.1:"+port)
	begin := func() *program {
		dev := s.begin("dev", "--tasks", ".", "--port", port, "--headless", "--data", "data", "--slots", "2")
		dev.ready()
		return dev
	}
	dev := begin()
	s.run(0, "map", "step:gate", "--range", "5:7", "--pool", "cpu", "--option", "chunk=1", "--id", "gated", "--detach")
	// ran has what was said of the last try of the chunks that are in this one.
	ran := func(attempt int) (faults []string) {
		var shown struct {
			Pending []struct {
				Activity, State string
				Attempt         int
				Fault           struct{ Message string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(s.run(0, "show", "gated", "--json").stdout.String()), &shown))
		for _, p := range shown.Pending {
			if p.Activity == "gpumux.RunChunk" && p.State == "started" && p.Attempt == attempt {
				faults = append(faults, p.Fault.Message)
			}
		}
		return faults
	}
	rig.Wait(t, func() bool { return len(ran(1)) == 2 }, time.Minute, 20*time.Millisecond, "both items run")
	require.NoError(t, dev.Process.Kill())
	dev.code()
	begin()
	host, err := os.Hostname()
	require.NoError(t, err)
	died := fmt.Sprintf("worker %s/%d died", host, dev.Process.Pid)
	rig.Wait(t, func() bool { return len(ran(2)) == 2 }, time.Minute, 20*time.Millisecond, "both run again")
	require.Equal(t, []string{died, died}, ran(2))
	s.write("open", "")
	s.run(0, "wait", "gated")
}

// TestWorker_StopsOnTerm runs the worker's file, and checks others.
func TestWorker_StopsOnTerm(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.at(newSite(t))
	waiting := s.begin("map", "double", "--range", "0:3", "--pool", "host", "--out", "r.jsonl")
	require.Eventually(t, func() bool { return strings.Contains(waiting.stderr.String(), "no worker serves queue gpumux") },
		time.Minute, 20*time.Millisecond, "says within seconds that no worker is there")

	s.write("worker.yaml", "store: file://"+s.path("store")+"\npools: [{name: host, devices: cpu}]\ntasks: {double: {python: \"step.py:double\"}}\n")
	checked := s.run(0, "worker", "-f", "worker.yaml", "--check").stdout.String()
	require.Regexp(t, `(?s)ok +file .*ok +temporal .*ok +store `, checked)
	worker := s.begin("worker", "-f", "worker.yaml")
	require.Equal(t, 0, waiting.code(), waiting.stderr.String())
	require.Len(t, s.lines(s.file("r.jsonl")), 3)
	stop(t, worker)

	s.write("away.yaml", "temporal: {address: '127.0.0.1:1'}\nstore: file:///proc/none\npools: [{name: host, devices: cpu}]\ntasks: {double: {python: \"step.py:double\"}}\n")
	checked = s.run(3, "worker", "-f", "away.yaml", "--check").stdout.String()
	require.Regexp(t, `(?s)ok +file .*FAILED +temporal .*127.0.0.1:1.*temporal.address.*FAILED +store `, checked)
	s.write("bad.yaml", "pool: []\nstore: nowhere\n")
	p := s.run(2, "worker", "-f", "bad.yaml")
	require.Contains(t, p.stderr.String(), "bad.yaml:1")
}
