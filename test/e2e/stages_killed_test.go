package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// line is a host with a map of two stages, whose workers are processes of their own.
type line struct {
	*host
	n      int
	stages [2]lineStage
}

// lineStage notes in a file what it runs; folder has what it has stored. Had are the
// items that were stored at some time, and how often each had run by then.
type lineStage struct {
	pool, calls, folder string
	worker              *program
	had                 map[string]int
}

func newLine(t *testing.T, n int) *line {
	t.Helper()
	l := &line{host: newHost(t), n: n, stages: [2]lineStage{
		{pool: "cpu", calls: "calls", folder: "store/maps/line/stage-*/*.parts"}, {pool: "gpu", calls: "calls2", folder: "store/maps/line/one/*.parts"},
	}}
	for i := range l.stages {
		s := &l.stages[i]
		s.had = map[string]int{}
		l.write(s.calls, "")
		l.write(s.pool+".yaml", fmt.Sprintf("store: file://%s\npools: [{name: %s, devices: cpu, slots: 2}]\ncontact: 2s\n"+
			"tasks: {%s: {python: \"faulty.py:step\", env: {CALLS: %q}}}\n", l.path("store"), s.pool, s.calls, l.path(s.calls)))
	}
	return l
}

// work starts the worker of a stage, in place of one that was killed.
func (l *line) work(at int) {
	l.stages[at].worker = l.begin("worker", "-f", l.stages[at].pool+".yaml")
}

func (l *line) start() client.WorkflowRun {
	l.t.Helper()
	in := gpumux.MapInput{Range: &gpumux.Range{End: int64(l.n)}, Output: "maps/line/one/results.jsonl",
		Stages: []gpumux.Stage{on("cpu", "calls"), on("gpu", "calls2")}}
	run, err := l.client().ExecuteWorkflow(l.t.Context(), client.StartWorkflowOptions{ID: "line", TaskQueue: gpumux.Queue,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING}, gpumux.MapWorkflow, in)
	require.NoError(l.t, err)
	return run
}

// until waits until a stage has run so many items.
func (l *line) until(at, items int) {
	l.t.Helper()
	rig.Wait(l.t, func() bool { count, _ := l.ranIn(l.stages[at].calls); return len(count) >= items }, 3*time.Minute, 5*time.Millisecond,
		"%d items have run in stage %d", items, at+1)
}

// note notes what the stages have stored by now.
func (l *line) note() {
	l.t.Helper()
	for _, s := range l.stages {
		stored := l.stored(s.folder)
		count, _ := l.ranIn(s.calls)
		for item := range stored {
			s.had[item] = max(s.had[item], count[item])
		}
	}
}

// kill kills the worker of a stage. What was stored before is noted.
func (l *line) kill(at int) {
	l.t.Helper()
	l.note()
	p := l.stages[at].worker
	require.NoError(l.t, p.Process.Kill())
	<-p.ended
}

// ends waits for the end of the map and checks it: each item has its result once, and no
// stage ran again what it had stored.
func (l *line) ends(run client.WorkflowRun) (again int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Minute)
	defer cancel()
	var summary gpumux.Summary
	require.NoError(l.t, l.client().GetWorkflow(l.t.Context(), run.GetID(), "").Get(ctx, &summary))
	require.EqualValues(l.t, l.n, summary.Succeeded)
	require.Zero(l.t, summary.Failed)
	lines := l.lines(l.file("store/maps/line/one/results.jsonl"))
	require.Len(l.t, lines, l.n)
	for i, line := range lines {
		require.Equal(l.t, strconv.Itoa(i), string(line["index"]))
		require.Equal(l.t, strconv.Itoa(i), string(line["value"]))
	}
	for at, s := range l.stages {
		require.EqualValues(l.t, l.n, summary.Stages[at].Succeeded)
		count, _ := l.ranIn(s.calls)
		require.Len(l.t, count, l.n)
		for item, times := range count {
			if had, stored := s.had[item]; stored {
				require.Equal(l.t, had, times, "item %s of stage %d was stored and ran again", item, at+1)
			}
			again += times - 1
		}
	}
	folders, err := filepath.Glob(l.path("store/maps/line/stage-*"))
	require.NoError(l.t, err)
	require.Empty(l.t, folders)
	return again
}

// A killed worker of any stage costs the items that it ran, and no other stage's.
func TestStages_KilledWorkers(t *testing.T) {
	t.Parallel()
	l := newLine(t, 400)
	for at := range l.stages {
		l.work(at)
	}
	run := l.start()
	l.until(1, 80)
	for at := range l.stages {
		l.kill(at)
		l.work(at)
	}
	require.NotEmpty(t, l.stages[0].had)
	require.NotEmpty(t, l.stages[1].had)
	t.Logf("%d items ran again", l.ends(run))
}

// TestSoak_Stages does any harm to a map of two stages while it runs.
func TestSoak_Stages(t *testing.T) {
	chance := soaking(t)
	const n, rounds = 4000, 24
	l := newLine(t, n)
	server := l.server()
	for at := range l.stages {
		l.work(at)
	}
	run := l.start()
	did := map[string]int{}
	for round := range rounds {
		l.until(1, n*(round+1)/(rounds+2)+chance.IntN(n/(rounds+2)))
		what := []string{"worker 1", "worker 2", "both workers", "server", "map", "part"}[chance.IntN(6)]
		did[what]++
		switch what {
		case "server":
			require.NoError(t, server.Process.Kill())
			<-server.ended
			server = l.server()
		case "map":
			require.NoError(t, l.client().CancelWorkflow(t.Context(), run.GetID(), ""))
			require.Error(t, run.Get(t.Context(), nil))
			l.note()
			run = l.start()
		case "part":
			l.damage(chance)
		default:
			for at := range l.stages {
				if !strings.HasSuffix(what, strconv.Itoa(2-at)) {
					l.kill(at)
					l.work(at)
				}
			}
		}
	}
	t.Logf("%v: %d items ran again", did, l.ends(run))
}

// damage harms a part of the first stage, which may make its items again.
func (l *line) damage(chance *rand.Rand) {
	l.t.Helper()
	files, err := filepath.Glob(l.path("store/maps/line/stage-*/*.parts/*.0*.jsonl"))
	require.NoError(l.t, err)
	if len(files) == 0 {
		return
	}
	file := files[chance.IntN(len(files))]
	text, err := os.ReadFile(file)
	require.NoError(l.t, err)
	if err = os.Remove(file); chance.IntN(2) == 0 {
		text[chance.IntN(len(text))] ^= byte(1 + chance.IntN(255))
		err = os.WriteFile(file, text, 0o600)
	}
	require.NoError(l.t, err)
	clear(l.stages[0].had)
}
