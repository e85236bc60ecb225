package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// far is a Runner whose slot comes free late, and notes how long it then had it.
type far struct{ held time.Duration }

func (f *far) Run(_ context.Context, call Call) error {
	time.Sleep(300 * time.Millisecond)
	began := time.Now()
	defer func() { f.held += time.Since(began) }()
	for item, err := range call.Items {
		if err != nil {
			return err
		}
		call.Done(gpumux.Result{Index: item.Index, Value: item.Value})
	}
	return nil
}

// What a chunk waits for before its first item is not the items' cost: chunks would stay small where the store is far.
func TestRunChunk_BusyBeginsWithTheFirstItem(t *testing.T) {
	runner := &far{}
	l := newLab(t, runner)
	l.env.RegisterActivityWithOptions(l.pool.RunChunk, activity.RegisterOptions{Name: "chunk"})
	encoded, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Whole(20), Parts: "m/parts"})
	require.NoError(t, err)
	var result contract.ChunkResult
	require.NoError(t, encoded.Get(&result))
	require.EqualValues(t, 20, result.Ran)
	require.Positive(t, result.Busy)
	// The end is read after the runner has gone, so a margin of what it waited.
	require.Less(t, time.Duration(result.Busy), runner.held+300*time.Millisecond)
}
