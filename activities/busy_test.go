package activities

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

// far is a Runner whose slot comes free late. It notes when.
type far struct{ free time.Time }

func (f *far) Run(_ context.Context, call calls.Call, work calls.Work) error {
	time.Sleep(300 * time.Millisecond)
	f.free = time.Now()
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

// The wait before the first item does not count as the items' time. Otherwise chunks
// would stay small where the store is far away.
func TestRunChunk_BusyBeginsWithTheFirstItem(t *testing.T) {
	runner := &far{}
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	encoded, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	require.EqualValues(t, 20, result.Ran)
	require.Positive(t, result.Busy)
	require.Less(t, time.Duration(result.Busy), time.Since(runner.free), "it does not begin before the slot is free, and has ended")
}

// loading is a Runner whose process takes its time to load the task, and notes that end.
type loading struct{ ready time.Time }

func (l *loading) Run(_ context.Context, call calls.Call, work calls.Work) error {
	next, stop := iter.Pull2(work.Items())
	defer stop()
	item, err, more := next()
	time.Sleep(300 * time.Millisecond)
	l.ready = time.Now()
	if err := work.Meet(calls.Process{}); err != nil {
		return err
	}
	for ; more && err == nil; item, err, more = next() {
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return err
}

// Nor does the load of the task. Otherwise a stage that loads a model would seem slow.
func TestRunChunk_BusyBeginsWithTheProcess(t *testing.T) {
	runner := &loading{}
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	encoded, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	require.EqualValues(t, 20, result.Ran)
	require.Positive(t, result.Busy)
	require.Less(t, time.Duration(result.Busy), time.Since(runner.ready))
}

// full is a Runner whose slots all stay busy.
type full struct{}

func (full) Run(_ context.Context, call calls.Call, work calls.Work) error {
	if call.Patience == 0 {
		panic("it would wait for ever")
	}
	return ErrBusy
}

// A chunk that came ahead of a slot which does not become free goes back, for another
// worker to take.
func TestRunChunk_GoesBackWhereNoSlotIsFree(t *testing.T) {
	l := newLab(t, full{})
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	var again *temporal.ApplicationError
	require.ErrorAs(t, err, &again)
	require.False(t, again.NonRetryable())
	require.ErrorContains(t, err, ErrBusy.Error())
}
