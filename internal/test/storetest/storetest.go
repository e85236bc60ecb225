// Package storetest writes results into a store, and reads which items have one.
//
// It is for tests. Nothing runs between calls.
package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/store"
)

// Write stores results, in any order, as a part of their own in a folder.
func Write(t testing.TB, s *store.Store, folder string, all []gpumux.Result) {
	t.Helper()
	f, err := s.Folder(folder)
	require.NoError(t, err)
	a := f.Append()
	for _, r := range all {
		require.NoError(t, a.Add(r))
	}
	require.NoError(t, a.Flush(t.Context()))
}

// Runs returns all items that have a result in a folder.
func Runs(t testing.TB, s *store.Store, folder string) (runs contract.Runs) {
	t.Helper()
	f, err := s.Folder(folder)
	require.NoError(t, err)
	for line, err := range f.Tail(true).Lines(t.Context(), nil) {
		require.NoError(t, err)
		outcome, err := results.ParseOutcome(line)
		require.NoError(t, err)
		runs.Add(outcome.Index)
	}
	return runs
}
