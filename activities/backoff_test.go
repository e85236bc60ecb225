package activities

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

// raising is a Runner whose odd items raise.
type raising struct {
	attempts []int
	ran      []int64
}

func (r *raising) Run(ctx context.Context, call calls.Call, work calls.Work) error {
	r.attempts = append(r.attempts, call.Attempts)
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		r.ran = append(r.ran, item.Index)
		result := gpumux.Result{Index: item.Index, Value: json.RawMessage("1")}
		if item.Index%2 == 1 {
			result = gpumux.Result{Index: item.Index, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "odd", Attempts: 1}}
		}
		work.Done(calls.Done{Result: result})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func runChunk(t *testing.T, runner Runner, chunk contract.Chunk) contract.ChunkResult {
	t.Helper()
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	chunk.Range, chunk.Work = &gpumux.Range{End: 10}, contract.Whole(10)
	encoded, err := l.env.ExecuteActivity("chunk", chunk)
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	return result
}

// With a pause between tries an item that raises has no result before its last try, and
// holds no slot in between.
func TestRunChunk_ItemsThatRaiseComeBack(t *testing.T) {
	runner := &raising{}
	result := runChunk(t, runner, contract.Chunk{Attempts: 3, Backoff: true, Tries: 1})
	require.NotContains(t, runner.attempts, 3)
	require.EqualValues(t, 10, result.Covered)
	require.EqualValues(t, 10, result.Ran)
	require.EqualValues(t, 5, result.Succeeded)
	require.Zero(t, result.Failed)
	require.Len(t, result.Results, 5)
	require.Equal(t, []int64{1, 3, 5, 7, 9}, indices(result.Retry))

	result = runChunk(t, runner, contract.Chunk{Attempts: 3, Backoff: true, Tries: 2})
	require.Empty(t, result.Retry, "that was the last try")
	require.EqualValues(t, 5, result.Failed)
	require.Equal(t, 3, result.Results[1].Fault.Attempts)

	runChunk(t, runner, contract.Chunk{Attempts: 3})
	require.Equal(t, 3, runner.attempts[len(runner.attempts)-1], "without a pause the slot tries them")
}

func indices(runs contract.Runs) (all []int64) {
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			all = append(all, i)
		}
	}
	return all
}

func TestLedger_WhatIsFinalDoesNotComeBack(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p", Backoff: true, Attempts: 2}, contract.Runs{span(0, 4)}, memo{})
	_, later, _ := l.add(calls.Done{Result: gpumux.Result{Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Attempts: 1, Final: true}}})
	require.False(t, later)
	require.EqualValues(t, 1, l.result.Failed)
}

// The next attempt at a chunk knows which items are to be tried again.
func TestLedger_WhatComesBackIsNotRunTwice(t *testing.T) {
	l := recorded(contract.Chunk{Parts: "p", Backoff: true, Attempts: 2}, contract.Runs{span(0, 4)}, memo{})
	_, later, _ := l.add(calls.Done{Result: gpumux.Result{Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Attempts: 1}}})
	require.True(t, later)
	m := l.snapshot("")
	spans, _, _ := nextOf(recorded(contract.Chunk{Parts: "p"}, contract.Runs{span(0, 4)}, m))
	require.Equal(t, contract.Runs{span(0, 1), span(2, 4)}, spans)
}

// A chunk ends at the first failure beyond those that may be.
func TestRunChunk_HandsBackTheRestAfterTooManyFailures(t *testing.T) {
	runner, may := &raising{}, int64(1)
	result := runChunk(t, runner, contract.Chunk{MayFail: &may})
	require.EqualValues(t, 4, result.Covered)
	require.EqualValues(t, 2, result.Failed)
	require.Equal(t, int64(3), slices.Max(runner.ran))
}
