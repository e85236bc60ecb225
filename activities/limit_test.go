package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// eager takes two items before it runs the first, as slots do.
type eager struct{}

func (eager) Run(_ context.Context, call calls.Call, work calls.Work) error {
	var held []calls.Item
	run := func() {
		work.Done(calls.Done{Result: gpumux.Result{Index: held[0].Index, Value: json.RawMessage("1")}})
		held = held[1:]
	}
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		if held = append(held, item); len(held) == 2 {
			run()
		}
	}
	for len(held) > 0 {
		run()
	}
	return nil
}

// When its time is over, a chunk hands back the items that the slot has not taken. Those
// that it has taken still run and count.
func TestRunChunk_HandsBackAfterItsLimit(t *testing.T) {
	l := newLab(t, eager{})
	s, err := store.Open(t.Context(), "file://"+t.TempDir())
	require.NoError(t, err)
	defer s.Close()
	l.pool.Store, l.pool.Recorders = s, record.New(s)
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	run := func(limit time.Duration) (result contract.ChunkResult) {
		value, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 20}, Work: contract.Work{Runs: contract.Runs{span(10, 20)}},
			Parts: fmt.Sprintf("m/%d", limit), Limit: gpumux.Duration(limit)})
		require.NoError(t, err)
		require.NoError(t, value.Get(&result))
		return result
	}
	late := run(1)
	require.EqualValues(t, 2, late.Covered, "the first item was done, the second taken")
	require.EqualValues(t, 2, late.Ran)
	runs := storetest.Runs(t, s, "m/1")
	require.Equal(t, contract.Runs{span(10, 12)}, runs)
	require.Positive(t, late.Pace)
	l.env.SetHeartbeatDetails(memo{}) // of an attempt that got no slot
	require.EqualValues(t, 2, run(2).Covered)
	l.env.SetHeartbeatDetails(memo{History: recovery.History{Suspects: map[int64]recovery.Suspect{15: {Tries: 1}}}})
	require.EqualValues(t, 10, run(3).Covered, "what is known of deaths would be lost")
	l.env.SetHeartbeatDetails(nil)
	for _, in := range []contract.ChunkResult{run(0), run(time.Hour)} {
		require.EqualValues(t, 10, in.Covered)
		require.EqualValues(t, 10, in.Ran)
		require.Zero(t, in.Pace)
	}
}
