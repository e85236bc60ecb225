package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A start that takes long does not hold up others for longer than its turn.
func TestTurns_AreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(turns, 2)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		end, err := all.take(t.Context())
		require.NoError(t, err)
		_, err = all.take(t.Context())
		require.NoError(t, err)
		_, err = all.take(gone)
		require.ErrorIs(t, err, context.Canceled, "both are taken")
		end()
		end()
		require.Len(t, all, 1, "it was given back once")
		began := time.Now()
		for range 2 {
			_, err := all.take(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, turnLimit, time.Since(began))
		time.Sleep(turnLimit) // in the bubble's time: no turn is left
		synctest.Wait()
		require.Empty(t, all)
	})
}
