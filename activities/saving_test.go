package activities

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// swelling returns a megabyte for every item.
type swelling struct{ ran atomic.Int64 }

func (s *swelling) Run(_ context.Context, call calls.Call, work calls.Work) error {
	value := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		s.ran.Add(1)
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: value}})
	}
	return nil
}

// While the store takes nothing, a chunk runs only a limited number of items ahead. It
// loses none.
func TestRunChunk_WaitsForTheStoreInBoundedMemory(t *testing.T) {
	runner := &swelling{}
	l := newLab(t, runner)
	dir := t.TempDir()
	s, err := store.Open(t.Context(), "file://"+dir)
	require.NoError(t, err)
	defer s.Close()
	l.pool.Store, l.pool.Recorders = s, record.New(s)
	obstacle := filepath.Join(dir, "m") // a file where the folder of parts has to be
	require.NoError(t, os.WriteFile(obstacle, nil, 0o600))
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	ended := make(chan error, 1)
	go func() {
		_, err := l.env.ExecuteActivity("chunk", contract.Chunk{Range: &gpumux.Range{End: 200}, Work: contract.Whole(200), Parts: "m/parts"})
		ended <- err
	}()
	limit := int64(record.Unstored>>20) + 1
	require.Eventually(t, func() bool { return runner.ran.Load() >= limit-1 }, time.Minute, time.Millisecond)
	require.Never(t, func() bool { return runner.ran.Load() > limit }, time.Second, 10*time.Millisecond)
	require.NoError(t, os.Remove(obstacle))
	require.NoError(t, <-ended)
	require.EqualValues(t, 200, runner.ran.Load())
	runs := storetest.Runs(t, s, "m/parts")
	require.Equal(t, contract.Whole(200).Runs, runs)
}
