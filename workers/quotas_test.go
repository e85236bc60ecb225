package workers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/config"
)

func testQuotas(limits map[string]config.Quota) *quotas {
	return &quotas{pool: "gpu", host: "host1", limits: limits, keys: map[string]*usage{}}
}

// chunk is work that was admitted.
type chunk struct {
	await func(context.Context) error
	leave func()
}

func admit(t *testing.T, q *quotas, key string) chunk {
	t.Helper()
	await, leave, err := q.Admit(key)
	require.NoError(t, err)
	return chunk{await, leave}
}

func TestQuotas_SlotsOfAKey(t *testing.T) {
	q := testQuotas(map[string]config.Quota{"team-a": {Slots: 2}})
	first := admit(t, q, "team-a")
	admit(t, q, "team-a")
	for range 10 {
		admit(t, q, "team-b") // nothing bounds it
	}

	_, _, err := q.Admit("team-a")
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.NonRetryable())
	require.Equal(t, time.Second, failed.NextRetryDelay())
	var fault gpumux.Fault
	require.NoError(t, failed.Details(&fault))
	require.Equal(t, "waits for the quota of team-a: 2 slots of pool gpu at host1", fault.Message)
	require.Equal(t, []contract.QuotaInfo{{Key: "team-a", Slots: 2, Busy: 2, Waits: true}}, q.describe())

	first.leave()
	admit(t, q, "team-a")
}

// Each key that the file does not name has the quota of "*" to itself.
func TestQuotas_OtherKeys(t *testing.T) {
	q := testQuotas(map[string]config.Quota{"team-a": {Slots: 2}, "*": {Slots: 1}})
	admit(t, q, "team-b")
	admit(t, q, "team-c")
	_, _, err := q.Admit("team-b")
	require.ErrorContains(t, err, "the quota of team-b: 1 slot of pool gpu at host1")
	require.Equal(t, []contract.QuotaInfo{
		{Key: "*", Slots: 1}, {Key: "team-a", Slots: 2}, {Key: "team-b", Slots: 1, Busy: 1, Waits: true}, {Key: "team-c", Slots: 1, Busy: 1},
	}, q.describe())
}

// The rate is that of the key, over all of its chunks, and does not begin anew with each.
func TestQuotas_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQuotas(map[string]config.Quota{"*": {Rate: 2}})
		began := time.Now()
		for range 3 {
			chunk := admit(t, q, "team-a")
			for range 4 {
				require.NoError(t, chunk.await(t.Context()))
			}
			chunk.leave()
		}
		require.Equal(t, 5500*time.Millisecond, time.Since(began).Round(time.Millisecond), "12 items, the first at once")

		last := admit(t, q, "team-a")
		ctx, cancel := context.WithCancelCause(t.Context())
		end, done := errors.New("the end"), make(chan error)
		go func() { done <- last.await(ctx) }()
		synctest.Wait()
		require.Equal(t, []contract.QuotaInfo{{Key: "*", Rate: 2}, {Key: "team-a", Rate: 2, Busy: 1, Waits: true}}, q.describe())
		cancel(end)
		require.ErrorIs(t, <-done, end)
	})
}

// Keys that are over leave nothing behind: with "*" each map may bring its own.
func TestQuotas_ForgetsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQuotas(map[string]config.Quota{"*": {Slots: 1, Rate: 100}})
		for i := range 1000 {
			chunk := admit(t, q, fmt.Sprint(i))
			require.NoError(t, chunk.await(t.Context()))
			chunk.leave()
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(q.keys), 2)
	})
}
