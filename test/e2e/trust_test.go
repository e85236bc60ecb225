package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
	"github.com/gpumux/gpumux/workflows"
)

// Two maps may write into one folder; an output has one owner. What is damaged or gone
// runs again, whether a merge finds it or a later map.
func TestTrust_AnOutputHasOneOwner(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	run := func(task, output string) (gpumux.Summary, error) {
		return s.run(gpumux.MapInput{Task: task, Range: &gpumux.Range{Start: 1, End: 3}, Ladder: []string{"cpu"}, Output: output})
	}
	double, err := run("double", "d/double.jsonl")
	require.NoError(t, err)
	big, err := run("big", "d/big.jsonl")
	require.NoError(t, err)
	require.Equal(t, "4", string(s.results(double)[1].Value))
	require.Equal(t, `"xx"`, string(s.results(big)[1].Value))
	again, err := run("double", "d/double.jsonl")
	require.NoError(t, err)
	require.Zero(t, again.Chunks, "the results are there already")
	_, err = run("big", "d/double.jsonl")
	require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
	require.ErrorContains(t, err, "holds the results of task double")
	require.ErrorContains(t, err, "this map is task big")
	require.Equal(t, "4", string(s.results(double)[1].Value), "the results of the first are as they were")

	in := gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: 5000}, Ladder: []string{"cpu"}, Output: "e/double.jsonl"}
	_, err = s.run(in)
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(s.dir, "store/e/double.jsonl"))
	require.NoError(t, err)
	for _, harm := range []func(path string, text []byte) error{
		func(path string, text []byte) error {
			text[len(text)-5] ^= 1
			return os.WriteFile(path, text, 0o600)
		},
		func(path string, text []byte) error { return os.WriteFile(path, text[:len(text)-20], 0o600) },
		func(path string, _ []byte) error { return os.Remove(path) },
	} {
		require.NotEmpty(t, s.partFilesOf("e"))
		path := s.partFilesOf("e")[0]
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, harm(path, text))
		sum, err := s.run(in)
		require.NoError(t, err)
		require.Positive(t, sum.Chunks, "what was lost ran again")
		require.EqualValues(t, 5000, sum.Succeeded)
		got, err := os.ReadFile(filepath.Join(s.dir, "store/e/double.jsonl"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

// partFilesOf are the parts of the outputs in a folder of the store.
func (s *site) partFilesOf(folder string) []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "store", folder, "*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	require.NoError(s.t, err)
	return files
}

// keepResults stores as parts those of an output's results that are wanted.
func (s *site) keepResults(output string, wanted func(int64) bool) {
	s.t.Helper()
	st, err := store.Open(s.t.Context(), s.store)
	require.NoError(s.t, err)
	defer st.Close()
	var kept []gpumux.Result
	for r, err := range storetest.Results(s.t.Context(), st, output) {
		require.NoError(s.t, err)
		if wanted(r.Index) {
			kept = append(kept, r)
		}
	}
	storetest.Write(s.t, st, contract.PartsOf(output), kept)
}

// A worker with another store than the map's says so, and the map ends instead of waiting
// for ever.
func TestTrust_WorkersWithDifferentStores(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	other := s.config("other", 1)
	other.Store = "file://" + filepath.Join(s.dir, "elsewhere")
	s.serve(other)
	refused := 0
	for i := range 8 {
		_, err := s.run(gpumux.MapInput{
			Task: "double", Range: &gpumux.Range{End: 3000}, Ladder: []string{"other"}, Output: fmt.Sprintf("d/%d.jsonl", i),
		})
		if err != nil {
			refused++
			require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
			require.ErrorContains(t, err, s.store)
			require.ErrorContains(t, err, other.Store)
		}
	}
	require.Positive(t, refused, "both workers answer on the queue of light activities")
}
