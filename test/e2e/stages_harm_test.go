package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// early.py and late.py are the code of early and late stages. Each notes what it has run.
const earlyPy = `
import gpumux, os, time
here = os.path.dirname(os.path.abspath(__file__))
def note(task, item):
    with open(os.path.join(here, "calls"), "a") as f: f.write("%s:%s\n" % (task, item))
def open_(name): return os.path.exists(os.path.join(here, name))
def inc(item):
    note("inc", item)
    return item + 1
def even(item):
    if item % 2 and not open_("fixed"): raise ValueError("%d is odd" % item)
    note("even", item)
    return item
def none(item): return None
def big(item): return "x" * (20 << 20)
def vector(item):
    import numpy
    return numpy.full(3, item, "f4")
def saves(item):
    gpumux.save("early.txt", str(item))
    return item
`

const latePy = `
import asyncio, gpumux, os, time
here = os.path.dirname(os.path.abspath(__file__))
def note(task, item):
    with open(os.path.join(here, "calls"), "a") as f: f.write("%s:%s\n" % (task, item))
def open_(name): return os.path.exists(os.path.join(here, name))
def gate(item):
    while item > 5 and not open_("open"): time.sleep(0.01)
    note("gate", item)
    return item * 10
def tens(item):
    if item % 10 == 0 and not open_("tens"): raise ValueError("%d ends in 0" % item)
    note("tens", item)
    return item
def echo(item): return item
def kind(item): return [type(item).__name__, str(getattr(item, "dtype", "")), len(item) if hasattr(item, "__len__") else item]
@gpumux.batch(max=8)
def many(items): return [item * 2 for item in items]
@gpumux.concurrent(max=4)
async def abreast(item):
    await asyncio.sleep(0)
    return item * 2
def large(item):
    if pool() != "large" and item % 20 == 0: raise MemoryError("not here")
    return [item, pool()]
def pool(): return gpumux.slot().name.split("/")[0]
def number(item): return item["n"]
def fails(item): raise ValueError("never")
def pid(item): return os.getpid()
def saves(item):
    gpumux.save("late.txt", str(item))
    return item
`

// newStages is a stage with workers of three pools.
func newStages(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	s.write("early.py", earlyPy)
	s.write("late.py", latePy)
	s.work()
	for _, pool := range []string{"gpu", "large"} {
		w, err := workers.New(onCPU(cpuPool{Pool: pool, Slots: 2, TasksDir: s.dir, Dir: s.dir, Store: s.site.store}),
			workers.Options{Client: s.Client, Runtime: t.TempDir(), StopTimeout: time.Second})
		require.NoError(t, err)
		serve(t, w)
	}
	return s
}

// ran is how often a task has run each item to its end.
func (s *stage) ran(task string) map[string]int {
	seen := map[string]int{}
	for _, call := range s.calls() {
		if item, ok := strings.CutPrefix(call, task+":"); ok {
			seen[item]++
		}
	}
	return seen
}

// once checks that a task has run so many items, none of them twice.
func (s *stage) once(task string, n int) {
	s.t.Helper()
	seen := s.ran(task)
	require.Len(s.t, seen, n, task)
	for item, times := range seen {
		require.Equal(s.t, 1, times, "%s ran item %s", task, item)
	}
}

// through is a map over the numbers 0 to n-1 in stages, each task@pool.
func through(n int64, stages ...gpumux.Stage) starter.Map {
	return starter.Map{Input: gpumux.MapInput{Range: &gpumux.Range{End: n}, Stages: stages}}
}

// stageFiles are the parts of all stages before the last of a map, and of its kept ones.
func (s *stage) stageFiles(id string) []string {
	files, err := filepath.Glob(filepath.Join(s.dir, "store/maps", id, "stage-*/*/*.0*.jsonl"))
	require.NoError(s.t, err)
	return files
}

func (s *stage) each(tests map[string]func(*stage)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		s.t.(*testing.T).Run(name, func(t *testing.T) {
			sub, site := *s, *s.site
			sub.t, site.t, sub.site = t, t, &site
			sub.forget()
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "tens")))
			tests[name](&sub)
		})
	}
}

func TestStages_ThroughHarm(t *testing.T) {
	s := newStages(t)
	s.each(map[string]func(*stage){
		"CancelledItGoesOn": cancelledStages, "OtherCodeOfTheLastStage": otherLastStage, "AnOutputOfItsOwn": ownOutput,
		"OtherCodeUnderTheSameCommand": otherCode, "RetriesFromWhereTheyFailed": retriedStages,
		"KeptStagesForgetWhatFailed": keptStages, "DamagedValuesAreMadeAgain": damagedStages,
	})
}

// halfway starts a map whose last stage stops at its gate, and waits until its first
// stage is through.
func (s *stage) halfway(m starter.Map, task string, n int) *starter.Handle {
	s.t.Helper()
	h := s.start(m)
	s.until("all stages but the last are through, and that stands", func() bool {
		p, err := h.Progress(s.t.Context())
		return err == nil && len(s.ran(task)) == n && p.Stages[len(p.Stages)-2].Succeeded == int64(n)
	})
	return h
}

func gatedStages(n int64) starter.Map {
	m := through(n, on("cpu", "early:inc"), on("gpu", "late:gate"))
	m.ID, m.Input.Chunk = fmt.Sprintf("gated-%d", n), 10
	return m
}

func (s *stage) tenfold(h *starter.Handle, n int) {
	s.t.Helper()
	values := s.values(h)
	require.Len(s.t, values, n)
	for i, value := range values {
		require.Equal(s.t, strconv.Itoa(10*(i+1)), value)
	}
}

func cancelledStages(s *stage) {
	h := s.halfway(gatedStages(200), "inc", 200)
	require.NoError(s.t, h.Cancel(s.t.Context()))
	_, err := s.wait(h)
	require.ErrorContains(s.t, err, "was cancelled")
	before := s.ran("gate")
	s.write("open", "")
	h, summary := s.done(gatedStages(200))
	require.Equal(s.t, starter.EntryContinued, h.Entry)
	require.EqualValues(s.t, 200, summary.Stages[0].Succeeded)
	require.EqualValues(s.t, 200, summary.Stages[1].Succeeded)
	s.tenfold(h, 200)
	s.once("inc", 200)
	for item, times := range s.ran("gate") {
		require.LessOrEqual(s.t, times, 1+before[item])
	}
	require.Empty(s.t, s.stageFiles(h.ID))
}

func otherLastStage(s *stage) {
	goesOnInStages(s, "maps/gated-150/one/results.jsonl", "maps/gated-150/two/results.jsonl", strings.ReplaceAll(latePy, "item * 10", "item * 100"), 100)
}

// The results lie where the caller says.
func ownOutput(s *stage) {
	goesOnInStages(s, "mine/gated.jsonl", "mine/gated.jsonl", latePy, 10)
	left, err := os.ReadDir(filepath.Join(s.dir, "store/mine"))
	require.NoError(s.t, err)
	require.Len(s.t, left, 2, "the results and their parts")
}

// goesOnInStages runs a map to its last stage, and then under the same ID with that
// stage's code.
func goesOnInStages(s *stage, one, two, code string, times int) {
	run := func(output string) *starter.Handle {
		m := gatedStages(150)
		m.Input.Output = output
		_, err := s.Client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: m.ID, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, m.Input)
		require.NoError(s.t, err)
		h, err := s.Open(s.t.Context(), m.ID)
		require.NoError(s.t, err)
		return h
	}
	h := run(one)
	s.until("the first stage is through", func() bool {
		p, err := h.Progress(s.t.Context())
		return err == nil && len(p.Stages) > 0 && p.Stages[0].Succeeded == 150
	})
	require.NoError(s.t, h.Cancel(s.t.Context()))
	_, err := s.wait(h)
	require.ErrorContains(s.t, err, "was cancelled")
	s.write("late.py", code)
	defer s.write("late.py", latePy)
	s.write("open", "")
	h = run(two)
	_, err = s.wait(h)
	require.NoError(s.t, err)
	for i, value := range s.values(h) {
		require.Equal(s.t, strconv.Itoa(times*(i+1)), value)
	}
	s.once("inc", 150)
}

// otherCode has new code of the last stage under the same command: the results of the old
// code stay, and a retry begins with what the stage before has stored.
func otherCode(s *stage) {
	m := gatedStages(120)
	h := s.halfway(m, "inc", 120)
	require.NoError(s.t, h.Cancel(s.t.Context()))
	_, err := s.wait(h)
	require.ErrorContains(s.t, err, "was cancelled")
	s.write("late.py", strings.ReplaceAll(latePy, "item * 10", "item * 100"))
	defer s.write("late.py", latePy)
	s.write("open", "")
	_, err = s.wait(s.start(m))
	require.ErrorContains(s.t, err, "has results of other code")
	require.ErrorContains(s.t, err, "retry the map")
	m.Retry = true
	h, _ = s.done(m)
	for i, value := range s.values(h) {
		require.Equal(s.t, strconv.Itoa(100*(i+1)), value)
	}
	s.once("inc", 120)
}

func retriedStages(s *stage) {
	m := through(100, on("cpu", "early:inc"), on("gpu", "late:tens"), on("cpu", "late:echo"))
	m.ID, m.Input.Stages[1].Edition = "retried", launch.Code{Dir: s.dir, Target: "late.py:tens"}.Edition()
	h, summary := s.done(m)
	require.EqualValues(s.t, 10, summary.Failed)
	require.EqualValues(s.t, 10, summary.Stages[1].Failed)
	require.EqualValues(s.t, 90, summary.Stages[2].Succeeded)
	kept := s.stageFiles(h.ID)
	require.Len(s.t, kept, 1, "the values of the first stage")
	text, err := os.ReadFile(kept[0])
	require.NoError(s.t, err)
	require.Equal(s.t, 11, strings.Count(string(text), "\n"), "its head and what failed later")

	s.write("late.py", strings.ReplaceAll(latePy, "if item % 10 == 0 and", "if item == 100 and"))
	defer s.write("late.py", latePy)
	h, err = s.Retry(s.t.Context(), h.ID, nil)
	require.NoError(s.t, err)
	summary, err = s.wait(h)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 99, summary.Succeeded)
	require.EqualValues(s.t, 1, summary.Failed)
	s.once("inc", 100)
	s.once("tens", 99)
	require.Len(s.t, s.stageFiles(h.ID), 1)

	s.write("tens", "")
	h, err = s.Retry(s.t.Context(), h.ID, nil)
	require.NoError(s.t, err)
	summary, err = s.wait(h)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 100, summary.Succeeded)
	for i, value := range s.values(h) {
		require.Equal(s.t, strconv.Itoa(i+1), value)
	}
	s.once("inc", 100)
	s.once("tens", 100)
	stages, err := filepath.Glob(filepath.Join(s.dir, "store/maps/retried/stage-*"))
	require.NoError(s.t, err)
	require.Empty(s.t, stages)
}

func keptStages(s *stage) {
	m := through(40, on("cpu", "early:even"), on("gpu", "late:echo"))
	m.ID, m.Input.Stages[0].Keep = "kept", true
	h, summary := s.done(m)
	require.EqualValues(s.t, 20, summary.Failed)
	require.NotEmpty(s.t, s.stageFiles(h.ID))
	s.write("fixed", "")
	for range 2 { // the second time there is nothing to retry
		var err error
		h, err = s.Retry(s.t.Context(), h.ID, nil)
		require.NoError(s.t, err)
		summary, err = s.wait(h)
		require.NoError(s.t, err)
		require.EqualValues(s.t, 40, summary.Succeeded)
		require.Zero(s.t, summary.Failed)
	}
	s.once("even", 40)
	require.NotEmpty(s.t, s.stageFiles(h.ID))
}

// The parts of a stage are damaged while the next one has yet to read most of them: their
// items run again there, and nothing else does.
func damagedStages(s *stage) {
	m := through(300, on("cpu", "early:even"), on("cpu", "early:inc"), on("gpu", "late:gate"))
	m.ID, m.Input.Chunk = "damaged", 10
	s.write("fixed", "")
	h := s.halfway(m, "inc", 300)
	found, err := filepath.Glob(filepath.Join(s.dir, "store/maps/damaged/stage-2-*/*/*.0*.jsonl"))
	require.NoError(s.t, err)
	require.NotEmpty(s.t, found)
	for i, file := range found {
		switch i % 3 {
		case 0:
			text, err := os.ReadFile(file)
			require.NoError(s.t, err)
			text[len(text)-5] ^= 1
			require.NoError(s.t, os.WriteFile(file, text, 0o600))
		case 1:
			require.NoError(s.t, os.Truncate(file, 0)) // as a power cut leaves one
		default:
			require.NoError(s.t, os.Remove(file))
		}
	}
	s.write("open", "")
	summary, err := s.wait(h)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 300, summary.Succeeded)
	for _, stage := range summary.Stages {
		require.EqualValues(s.t, 300, stage.Succeeded, stage.Task)
	}
	s.tenfold(h, 300)
	s.once("even", 300)
	s.once("gate", 300)
	again := 0
	for _, times := range s.ran("inc") {
		require.LessOrEqual(s.t, times, 2)
		again += times - 1
	}
	require.Positive(s.t, again)
}

func TestStages_Tasks(t *testing.T) {
	s := newStages(t)
	s.each(map[string]func(*stage){
		"NothingIsAValue": stageValues, "Arrays": stageArrays, "EveryKindOfTask": stageTasks, "ALargerPool": stageLadder, "SomeFail": stageFailures,
		"FromNoneToMany": stageSizes, "LargeValues": stageLargeValues, "FilesAreOfTheLastStage": stageFiles,
		"LabelsOfASource": stageLabels, "PausedAndResumed": stagePause, "Pruned": stagePrune,
	})
}

// valuesOf runs a map and returns its values.
func (s *stage) valuesOf(m starter.Map) []string {
	s.t.Helper()
	h, summary := s.done(m)
	require.Zero(s.t, summary.Failed, summary.Results)
	for _, stage := range summary.Stages {
		require.EqualValues(s.t, summary.Items, stage.Succeeded, stage.Task)
	}
	return s.values(h)
}

func stageValues(s *stage) {
	require.Equal(s.t, []string{`["NoneType","",null]`, `["NoneType","",null]`}, s.valuesOf(through(2, on("cpu", "early:none"), on("gpu", "late:kind"))))
	require.Equal(s.t, []string{"null"}, s.valuesOf(through(1, on("cpu", "early:none"), on("gpu", "late:echo"), on("cpu", "late:echo"))))
}

func stageArrays(s *stage) {
	python := numPy(s.t.(*testing.T))
	s.site.serve(onCPU(cpuPool{Pool: "numpy", Slots: 1, Dir: s.dir, Store: s.site.store, Tasks: map[string]config.Task{
		"vector": {Python: "early.py:vector", Interpreter: python}, "kind": {Python: "late.py:kind", Interpreter: python},
	}}))
	require.Equal(s.t, []string{`["ndarray","float32",3]`}, s.valuesOf(through(1, on("numpy", "vector"), on("numpy", "kind"))))
}

func stageTasks(s *stage) {
	for _, task := range []string{"many", "abreast"} {
		for i, value := range s.valuesOf(through(500, on("cpu", "early:inc"), on("gpu", "late:"+task), on("large", "late:"+task))) {
			require.Equal(s.t, strconv.Itoa(4*(i+1)), value, task)
		}
	}
	m := through(12, on("cpu", "early:inc"), on("gpu", "late:pid"))
	m.Input.Stages[1].Mode = gpumux.ModeFresh
	values := s.valuesOf(m)
	slices.Sort(values)
	require.Len(s.t, slices.Compact(values), 12, "a process for each item")
}

func stageLadder(s *stage) {
	m := through(60, on("cpu", "early:inc"), on("gpu", "late:large"), on("cpu", "late:echo"))
	m.Input.Stages[1].Ladder = []string{"gpu", "large"}
	for i, value := range s.valuesOf(m) {
		pool := "gpu"
		if (i+1)%20 == 0 {
			pool = "large"
		}
		require.Equal(s.t, fmt.Sprintf("[%d,%q]", i+1, pool), value)
	}
	s.once("inc", 60)
}

func stageFailures(s *stage) {
	m := through(50, on("cpu", "late:fails"), on("gpu", "late:echo"), on("cpu", "late:echo"))
	h, summary := s.done(m)
	require.EqualValues(s.t, 50, summary.Failed)
	require.EqualValues(s.t, 50, summary.Stages[0].Failed)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 50}, summary.Faults)
	for _, stage := range summary.Stages[1:] {
		require.Zero(s.t, stage.Failed+stage.Succeeded+stage.Running+stage.Waiting, stage.Task)
	}
	for _, r := range s.results(h) {
		require.Equal(s.t, "late:fails", r.Fault.Task)
	}
	m = through(200, on("cpu", "early:inc"), on("gpu", "late:tens"))
	m.Input.MaxFailures, m.Input.Chunk = "5", 10
	h = s.start(m)
	_, err := s.wait(h)
	require.ErrorContains(s.t, err, "more than the 5 that may")
	s.write("tens", "")
	h, err = s.Retry(s.t.Context(), h.ID, nil)
	require.NoError(s.t, err)
	summary, err = s.wait(h)
	require.NoError(s.t, err)
	require.GreaterOrEqual(s.t, summary.Failed, int64(6), "what has a result keeps it")
	require.EqualValues(s.t, 200, summary.Succeeded+summary.Failed)
}

func stageSizes(s *stage) {
	echo := on("cpu", "late:echo")
	_, summary := s.done(through(0, on("cpu", "early:inc"), echo))
	require.Zero(s.t, summary.Succeeded+summary.Failed)
	require.Equal(s.t, []string{"1"}, s.valuesOf(through(1, on("cpu", "early:inc"), echo)))
	stages := slices.Repeat([]gpumux.Stage{on("gpu", "early:inc"), on("cpu", "early:inc")}, 8)
	for i, value := range s.valuesOf(through(300, stages...)) {
		require.Equal(s.t, strconv.Itoa(i+16), value)
	}
}

func stageLargeValues(s *stage) {
	for _, value := range s.valuesOf(through(3, on("cpu", "early:big"), on("gpu", "late:kind"))) {
		require.Equal(s.t, fmt.Sprintf(`["str","",%d]`, 20<<20), value)
	}
}

func stageFiles(s *stage) {
	h, summary := s.done(through(2, on("cpu", "early:saves"), on("gpu", "late:echo")))
	require.EqualValues(s.t, 2, summary.Failed)
	require.Contains(s.t, s.results(h)[0].Fault.Message, "in its last stage")
	h, _ = s.done(through(2, on("cpu", "early:inc"), on("gpu", "late:saves")))
	for _, r := range s.results(h) {
		require.Equal(s.t, []string{"late.txt"}, r.Files)
		file, err := h.File(s.t.Context(), r.Index, "late.txt")
		require.NoError(s.t, err)
		text, err := io.ReadAll(file)
		require.NoError(s.t, errors.Join(err, file.Close()))
		require.Equal(s.t, strconv.Itoa(int(r.Index)+1), string(text))
	}
}

func stageLabels(s *stage) {
	var lines strings.Builder
	for i := range gpumux.InlineItems + 100 {
		fmt.Fprintf(&lines, `{"id":"k%d","n":%d}`+"\n", i, i)
	}
	spooled, err := starter.Spool(strings.NewReader(lines.String()), "items.jsonl")
	require.NoError(s.t, err)
	h, _ := s.done(starter.Map{Spooled: spooled, Input: gpumux.MapInput{Key: "id", WithItem: true,
		Stages: []gpumux.Stage{on("cpu", "late:number"), on("gpu", "late:tens"), on("cpu", "late:echo")}}})
	for i, r := range s.results(h) {
		require.Equal(s.t, strconv.Quote(fmt.Sprint("k", i)), string(r.Key))
		require.JSONEq(s.t, fmt.Sprintf(`{"id":"k%d","n":%d}`, i, i), string(r.Item))
		require.Equal(s.t, i%10 == 0, r.Fault != nil)
	}
}

func stagePause(s *stage) {
	h := s.halfway(gatedStages(120), "inc", 120)
	require.NoError(s.t, h.Pause(s.t.Context()))
	s.write("open", "")
	s.until("nothing is in flight", func() bool {
		p, err := h.Progress(s.t.Context())
		return err == nil && p.Paused && p.InFlight == 0
	})
	p, err := h.Progress(s.t.Context())
	require.NoError(s.t, err)
	require.Zero(s.t, p.Stages[0].Running+p.Stages[1].Running)
	require.EqualValues(s.t, p.Succeeded, p.Stages[1].Succeeded)
	require.EqualValues(s.t, p.Stages[0].Succeeded, p.Stages[1].Succeeded+p.Stages[1].Waiting, "what one stage gave waits for the next")
	require.NoError(s.t, h.Resume(s.t.Context()))
	_, err = s.wait(h)
	require.NoError(s.t, err)
	s.tenfold(h, 120)
	s.once("inc", 120)
	s.once("gate", 120)
}

// A map that runs needs what its stages have stored, however long ago that was.
func stagePrune(s *stage) {
	old := func() (stages []string) {
		for _, key := range s.prune(time.Now().Add(time.Hour), true) {
			if strings.HasPrefix(key, "maps/gated-77/stage-") {
				stages = append(stages, key)
			}
		}
		return stages
	}
	m := gatedStages(77)
	m.Input.Stages[0].Keep = true
	h := s.halfway(m, "inc", 77)
	require.NotEmpty(s.t, s.stageFiles(h.ID))
	s.until("the map is listed", func() bool { return len(old()) == 0 })
	s.write("open", "")
	_, err := s.wait(h)
	require.NoError(s.t, err)
	s.until("the map has ended", func() bool { return len(old()) == 1 })
	s.prune(time.Now().Add(time.Hour), false)
	require.NoDirExists(s.t, filepath.Join(s.dir, "store/maps/gated-77"))
}
