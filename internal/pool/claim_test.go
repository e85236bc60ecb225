package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// claimedPool is a pool with its log, where a call has the slot of each named group and
// does not end.
func claimedPool(t *testing.T, n int, groups []string, hung ...string) (p *Pool, held []*Seat, log *observer.ObservedLogs) {
	t.Helper()
	core, seen := observer.New(zap.DebugLevel)
	p, _ = fakePool(n, groups...)
	p.Log = zap.New(core)
	for _, group := range hung {
		held = append(held, mustTake(t, p, "hung", group))
	}
	return p, held, seen
}

// whole asks for a whole group.
func whole(ctx context.Context, p *Pool) chan *Seat {
	got := make(chan *Seat, 1)
	go func() {
		if h, err := p.Acquire(ctx, Want{Task: "large", Whole: true}); err == nil {
			got <- h
		}
	}()
	synctest.Wait()
	return got
}

// innocent is another call, however long it has to wait.
func innocent(t *testing.T, p *Pool) {
	t.Helper()
	h, err := p.Acquire(t.Context(), Want{Task: "innocent"})
	require.NoError(t, err)
	p.Release(h)
}

// crowd runs calls of a length one after the other in n slots until ctx ends.
func crowd(ctx context.Context, p *Pool, n int, length time.Duration) {
	for range n {
		go func() {
			for {
				h, err := p.Acquire(ctx, Want{Task: "x"})
				if err != nil {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(length):
				}
				p.Release(h)
			}
		}()
	}
	synctest.Wait()
}

func TestPool_AClaimLapsesBesideACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, hung, log := claimedPool(t, 4, []string{"A"}, "A")
		large := whole(t.Context(), p)
		require.Zero(t, p.Load().Free)
		begun := time.Now()
		innocent(t, p)
		require.Equal(t, claimFor, time.Since(begun))
		require.Equal(t, 3, p.Load().Free)
		require.Equal(t, 1, log.FilterMessageSnippet("waits for others that do not end").Len())

		// In between others have the group.
		time.Sleep(claimRest - time.Nanosecond)
		innocent(t, p)
		begun = time.Now()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, p.Load().Free)
		innocent(t, p)
		require.Equal(t, claimFor+time.Nanosecond, time.Since(begun))
		require.Equal(t, 2, log.Len())

		begun = time.Now()
		p.Release(hung[0])
		alone := <-large
		require.Zero(t, time.Since(begun), "a free group is taken at once")
		require.Len(t, alone.Beside, 3)
		p.Release(alone)
		require.Equal(t, 4, p.Load().Free)
		require.Nil(t, p.ledger.claim)
	})
}

func TestPool_AClaimComesTrueHoweverLongCallsTake(t *testing.T) {
	for name, length := range map[string]time.Duration{"short": time.Second, "long": claimFor / 2, "as long as a claim rests": claimRest} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _, log := claimedPool(t, 4, []string{"A"})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				crowd(ctx, p, 8, length)
				begun := time.Now()
				large := whole(ctx, p)
				var alone *Seat
				select {
				case alone = <-large:
				case <-time.After(100 * length):
					t.Fatal("it waits for ever")
				}
				if length < claimFor {
					require.LessOrEqual(t, time.Since(begun), 2*length, "after those that run, and those that have waited for longer")
					require.Zero(t, log.Len())
				}
				p.Release(alone)
			})
		})
	}
}
