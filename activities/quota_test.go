package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// A chunk asks for a slot of its quota once, and before each item for the rate.
func TestRunChunk_TakesASlotOfItsQuota(t *testing.T) {
	l := newLab(t, &far{})
	inside, awaited := 0, 0
	l.pool.Admit = func(string) (func(context.Context) error, func(), error) {
		inside++
		return func(context.Context) error { awaited++; return nil }, func() { inside-- }, nil
	}
	l.pool.Saving = func() func() {
		require.Zero(t, inside, "what is left to do needs no slot")
		return func() {}
	}
	l.env.RegisterActivityWithOptions(l.pool.RunChunk, activity.RegisterOptions{Name: "chunk"})
	_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	require.NoError(t, err)
	require.Equal(t, []int{0, 20}, []int{inside, awaited})
}

// Over its quota a chunk goes back before it asks for a slot.
func TestRunChunk_GoesBackOverItsQuota(t *testing.T) {
	l := newLab(t, nil)
	l.pool.Admit = func(string) (func(context.Context) error, func(), error) {
		return nil, nil, OverQuota("the quota of team-a")
	}
	l.env.RegisterActivityWithOptions(l.pool.RunChunk, activity.RegisterOptions{Name: "chunk"})
	_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	var fault gpumux.Fault
	require.NoError(t, failed.Details(&fault))
	require.Equal(t, gpumux.Fault{Kind: gpumux.FaultCanceled, Op: contract.OpQuota, Message: "waits for the quota of team-a"}, fault)
}
