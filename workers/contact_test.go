package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// away lets the server be out of reach for so long and tells when, after its last answer, held calls ended.
func away(t *testing.T, outage time.Duration) (ended time.Duration) {
	t.Helper()
	ended = -1
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		k := newContact(nil, zap.NewNop())
		k.ask = func(context.Context) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.run(ctx) }()
		time.Sleep(5*askEvery + time.Millisecond)
		held := k.held()
		down.Store(true)
		time.Sleep(outage)
		synctest.Wait()
		if held.Err() != nil {
			require.ErrorIs(t, context.Cause(held), errSilence)
			ended = outage
			require.NoError(t, k.held().Err(), "later calls run")
		}
		down.Store(false)
		time.Sleep(5 * askEvery)
		synctest.Wait()
		require.NoError(t, k.held().Err())
		cancel()
		<-done
	})
	return ended
}

func TestContact_AShortOutageEndsNothing(t *testing.T) {
	require.EqualValues(t, -1, away(t, 6*time.Second))
}

// The server hands a chunk on 10 s after its last heartbeat, which was at most 1 s before the last answer.
func TestContact_CallsEndBeforeTheServerHandsTheirChunksOn(t *testing.T) {
	require.EqualValues(t, -1, away(t, silence-time.Second))
	require.Equal(t, silence+askEvery, away(t, silence+askEvery))
}
