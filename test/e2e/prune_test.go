package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// prune deletes what is over by now, and says what that was.
func (s *stage) prune(before time.Time, dryRun bool) (keys []string) {
	gone, err := s.Prune(s.t.Context(), starter.PruneOptions{Before: before, DryRun: dryRun})
	require.NoError(s.t, err)
	for _, p := range gone {
		require.Positive(s.t, p.Bytes, p.Key)
		keys = append(keys, p.Key)
	}
	return keys
}

// untilOver waits until these are what a prune would delete: the server lists maps a
// moment after they start or end.
func (s *stage) untilOver(what string, before time.Time, keys ...string) {
	slices.Sort(keys)
	s.until(what, func() bool { return slices.Equal(keys, slices.Sorted(slices.Values(s.prune(before, true)))) })
}

// untilStored waits until a map has claimed the folder of its results.
func (s *stage) untilStored(folder string) {
	s.until("the map has a folder", func() bool {
		found, err := filepath.Glob(filepath.Join(s.dir, "store", folder, "*.parts", "manifest.json"))
		return err == nil && len(found) == 1
	})
}

func TestPrune_KeepsWhatMapsAndSchedulesUse(t *testing.T) {
	s := newStage(t)
	s.work()
	spooled, err := starter.Spool(strings.NewReader(strings.Repeat("5\n", gpumux.InlineItems+1)), "items.jsonl")
	require.NoError(t, err)
	over := func(task string) starter.Map {
		in := gpumux.MapInput{Task: "step:" + task, Ladder: []string{"cpu"}, Window: 2} // it leaves slots to others
		return starter.Map{Input: in, Spooled: spooled}
	}
	source := "sources/" + spooled.Hash + ".jsonl"
	ended := s.start(over("double"))
	_, err = s.wait(ended)
	require.NoError(t, err)
	running := s.start(over("gate"))
	later := time.Now().Add(time.Hour) // as if that much time had passed

	require.Empty(t, s.prune(time.Now().Add(-time.Hour), false), "nothing is an hour old")
	folder := filepath.Dir(ended.Output)
	reader := s.start(starter.Map{Input: gpumux.MapInput{Task: "step:gate", Ladder: []string{"cpu"}, Source: gpumux.ValuesOf(ended.Output)}})
	s.untilStored(filepath.Dir(reader.Output))
	s.untilOver("its values are items of another map", later)
	require.NoError(t, reader.Cancel(t.Context()))
	_, err = s.wait(reader)
	require.ErrorAs(t, err, new(*starter.EndedError))
	s.untilOver("the other map has ended", later, folder, filepath.Dir(reader.Output))
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "store", filepath.Dir(reader.Output))))
	require.Equal(t, []string{folder}, s.prune(later, true), "the source is in use")
	require.Len(t, s.results(ended), gpumux.InlineItems+1, "a dry run deletes nothing")
	require.Equal(t, []string{folder}, s.prune(later, false))
	require.NoDirExists(t, filepath.Join(s.dir, "store", folder))
	reopened, err := s.Open(t.Context(), ended.ID)
	require.NoError(t, err)
	for _, err := range reopened.Results(t.Context(), starter.ReadOptions{}) {
		require.ErrorContains(t, err, "run the map again")
	}

	s.write("open", "")
	_, err = s.wait(running)
	require.NoError(t, err, "its source and its parts were left alone")
	require.Len(t, s.results(running), gpumux.InlineItems+1)

	// A schedule has the source too, and so has a young folder of a map that the server does
	// not know.
	nightly, err := s.Client.ScheduleClient().Create(t.Context(), client.ScheduleOptions{ID: "nightly", Action: &client.ScheduleWorkflowAction{
		ID: "nightly", Workflow: gpumux.MapWorkflow, TaskQueue: gpumux.Queue, Args: []any{gpumux.MapInput{Task: "step:double", Source: source}},
	}})
	require.NoError(t, err)
	s.untilOver("the schedule is listed", later, filepath.Dir(running.Output))
	require.Equal(t, []string{filepath.Dir(running.Output)}, s.prune(later, false))
	unknown := filepath.Join(s.dir, "store", "maps", "old", "run", "results.jsonl.parts")
	require.NoError(t, os.MkdirAll(unknown, 0o755))
	manifest := filepath.Join(unknown, "manifest.json")
	require.NoError(t, os.WriteFile(manifest, []byte(`{"manifest":1,"owner":{"input":"`+source+`, content 12"}}`), 0o644))
	require.NoError(t, os.Chtimes(manifest, time.Time{}, later.Add(time.Hour)))
	require.NoError(t, nightly.Delete(t.Context()))
	require.Empty(t, s.prune(later, false))
	s.untilOver("the schedule is gone", later.Add(2*time.Hour), "maps/old/run", source)
	require.Len(t, s.prune(later.Add(2*time.Hour), false), 2)
	require.NoFileExists(t, filepath.Join(s.dir, "store", strings.TrimSuffix(source, "jsonl")+"index"))
}

func TestPrune_KeepsTheResultsOfARunningMapThatNamesNoPlace(t *testing.T) {
	s := newStage(t)
	s.work()
	in := gpumux.MapInput{Task: "step:gate", Ladder: []string{"cpu"}, Range: &gpumux.Range{End: gpumux.InlineItems + 1}}
	run, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "bare", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	folder := "maps/bare/" + run.GetRunID()
	s.untilStored(folder)
	s.untilOver("the map is listed", time.Now().Add(time.Hour))
	s.write("open", "")
	require.NoError(t, run.Get(t.Context(), nil))
	s.untilOver("the map has ended", time.Now().Add(time.Hour), folder)
}

// One map, schedule or manifest that cannot be read keeps every input, and stops nothing
// else.
func TestPrune_GoesOnPastWhatItCannotRead(t *testing.T) {
	s := newStage(t)
	s.Store = s.config.Store
	defer s.Close()
	hash := func(digit string) string { return "sources/" + strings.Repeat(digit, 64) + ".jsonl" }
	for _, key := range []string{hash("1"), hash("2"), hash("3"), "maps/a/b/results.jsonl", "maps/a/c/results.jsonl"} {
		file := filepath.Join(s.dir, "store", key)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte("1\n"), 0o644))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(-2*time.Hour)))
	}
	begin := func(id, encoding, data string) {
		input := converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)})
		_, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, input)
		require.NoError(t, err)
	}
	gone := func() (keys, problems []string, err error) {
		before := time.Now().Add(-time.Hour)
		groups, err := s.Prune(t.Context(), starter.PruneOptions{Before: before, DryRun: true, Warn: func(text string) { problems = append(problems, text) }})
		for _, p := range groups {
			keys = append(keys, p.Key)
		}
		slices.Sort(keys)
		return keys, problems, err
	}
	var keys, problems []string
	until := func(want ...string) {
		t.Helper()
		s.until("the map is listed", func() bool {
			var err error
			keys, problems, err = gone()
			return err == nil && slices.Equal(want, keys)
		})
	}
	until("maps/a/b", "maps/a/c", hash("1"), hash("2"), hash("3"))

	broken := filepath.Join(s.dir, "store", "maps", "young", "run", "results.jsonl.parts", "manifest.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(broken), 0o755))
	require.NoError(t, os.WriteFile(broken, []byte(`{"manifest":1,"own`), 0o644))
	until("maps/a/b", "maps/a/c")
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "manifest.json is no manifest of this version")
	require.Contains(t, problems[0], "; every input is kept")
	require.NoError(t, os.Remove(broken))
	until("maps/a/b", "maps/a/c", hash("1"), hash("2"), hash("3"))

	begin("of-later", "json/plain", `{"tasks":["f"],"sources":["`+hash("1")+`"]}`) // as a later release may say it
	until("maps/a/b", "maps/a/c")
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "read the input of map of-later: ")
	require.Contains(t, problems[0], "; every input is kept")

	// What runs under a key that is not here may need anything. Of what has ended the input
	// is kept, whichever it is.
	begin("sealed", "binary/encrypted", "?")
	var err error
	s.until("the map is listed", func() bool { _, _, err = gone(); return err != nil })
	require.ErrorContains(t, err, "read the input of map sealed: ")
	require.ErrorContains(t, err, "give the workers' keys")
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), "sealed", "", "test"))
	until("maps/a/b", "maps/a/c")
	require.Contains(t, strings.Join(problems, "\n"), "map sealed")
}
