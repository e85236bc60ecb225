package activities

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// dying fails after some items, as if the worker were lost.
type dying struct {
	after int
	ran   []int64
}

func (d *dying) Run(_ context.Context, call calls.Call, work calls.Work) error {
	count := 0
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		if count++; d.after > 0 && count > d.after {
			return &gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "run", Message: "gone"}
		}
		d.ran = append(d.ran, item.Index)
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

// The next attempt, on another worker, finds what the first one stored and runs the rest,
// whether the heartbeats tell where that is or not. If the part is damaged, it runs
// everything.
func TestRunChunk_TheNextAttemptFindsWhatWasStored(t *testing.T) {
	work := contract.Work{Runs: contract.Runs{span(3, 6), span(100, 104), span(900, 901)}}
	for _, how := range []string{"told", "damaged", "not told"} {
		t.Run(how, func(t *testing.T) {
			damaged := how == "damaged"
			runner := &dying{after: 5}
			l := newLab(t, runner)
			l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
			chunk := contract.Chunk{Range: &gpumux.Range{End: 1000}, Work: work, Parts: "m/parts"}
			_, err := l.env.ExecuteActivity("chunk", chunk)
			require.ErrorContains(t, err, "gone")
			runs := storetest.Runs(t, l.store, "m/parts")
			require.Equal(t, contract.Runs{span(3, 6), span(100, 102)}, runs)
			again, written, err := l.pool.Recorders.Join("m/parts", "", false)
			require.NoError(t, err)
			again.Leave()
			if damaged {
				l.put(fmt.Sprintf("m/parts/%s.%06d.jsonl", written.Writer, written.Number))
			}
			l.pool.Recorders = record.New(l.store)
			last := memo{Written: []store.Position{written}}
			if how == "not told" {
				// Of an attempt before the last one, which died before its first heartbeat.
				other, elsewhere, err := record.New(l.store).Join("m/parts", "", false)
				require.NoError(t, err)
				other.Leave()
				last = memo{Written: []store.Position{elsewhere}, Attempt: 7}
			}
			l.env.SetHeartbeatDetails(last)
			runner.after, runner.ran = 0, nil
			encoded, err := l.env.ExecuteActivity("chunk", chunk)
			require.NoError(t, err)
			var result contract.ChunkResult
			require.NoError(t, encoded.Get(&result))
			want := []int64{102, 103, 900}
			if damaged {
				want = []int64{3, 4, 5, 100, 101, 102, 103, 900}
			}
			require.Equal(t, want, runner.ran)
			require.EqualValues(t, len(want), result.Ran)
			require.EqualValues(t, 8, result.Covered)
			require.EqualValues(t, 8, result.Succeeded)
			runs = storetest.Runs(t, l.store, "m/parts")
			require.Equal(t, work.Runs, runs)
		})
	}
}

func (l *lab) put(key string) {
	w, err := l.store.Objects.Create(l.t.Context(), key, objects.Creation{})
	require.NoError(l.t, err)
	defer w.Abort()
	_, err = w.Write([]byte("[]"))
	require.NoError(l.t, err)
	require.NoError(l.t, w.Close())
}
