// Package storetest writes results into a store, and reads which items have one.
//
// It is for tests. Nothing runs between calls.
package storetest

import (
	"context"
	"iter"
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

// Results yields what a results file has.
func Results(ctx context.Context, s *store.Store, name string) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		for line, err := range s.Lines(ctx, name) {
			var r gpumux.Result
			if err == nil {
				r, err = results.Parse(line)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
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
