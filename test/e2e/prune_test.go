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
	"github.com/gpumux/gpumux/internal/names"
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

func TestPrune_KeepsWhatMapsUse(t *testing.T) {
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
	argument, gated := "sources/"+strings.Repeat("0a", 32)+".arg", over("gate")
	s.write(filepath.Join("store", argument), names.ArraysHead)
	gated.Input.ArgFile = argument
	running := s.start(gated)
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

	s.untilOver("the map has ended", later, filepath.Dir(running.Output), argument, source)
	require.Len(t, s.prune(later, false), 3)
	require.NoFileExists(t, filepath.Join(s.dir, "store", argument))
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

// What runs under a key that is not here may need anything.
func TestPrune_RefusesWhereItCannotReadARunningMap(t *testing.T) {
	s := newStage(t)
	s.Store = s.config.Store
	defer s.Close()
	source := "sources/" + strings.Repeat("1", 64) + ".jsonl"
	for _, key := range []string{source, "maps/a/b/results.jsonl"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(s.dir, "store", key)), 0o755))
		s.write(filepath.Join("store", key), "1\n")
	}
	later := time.Now().Add(time.Hour)
	s.untilOver("nothing runs", later, "maps/a/b", source)
	encoded := converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("?")})
	_, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "encoded", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, encoded)
	require.NoError(t, err)
	s.until("the map is listed", func() bool {
		_, err = s.Prune(t.Context(), starter.PruneOptions{Before: later, DryRun: true})
		return err != nil
	})
	require.ErrorContains(t, err, "read the input of map encoded: ")
	require.ErrorContains(t, err, "give the workers' codec")
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), "encoded", "", "test"))
	s.until("the map has ended", func() bool {
		_, err = s.Prune(t.Context(), starter.PruneOptions{Before: later, DryRun: true})
		return err == nil
	})
}
