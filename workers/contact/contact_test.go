package contact

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/slot"
)

// sight is a contact whose server can be away and whose clock can jump.
type sight struct {
	*Contact
	down   atomic.Bool
	jumped atomic.Int64
	seen   *observer.ObservedLogs
}

// watching runs f beside a contact that has had some answers.
func watching(t *testing.T, f func(s *sight)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		s := &sight{seen: seen}
		began := time.Now()
		s.Contact = New(func(context.Context) error {
			if s.down.Load() {
				return errors.New("connection refused")
			}
			return nil
		}, func() time.Duration { return time.Hour + time.Since(began) + time.Duration(s.jumped.Load()) }, zap.New(core))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		time.Sleep(5*askEvery + time.Millisecond)
		synctest.Wait()
		f(s)
		cancel()
		<-done
	})
}

func TestContact_AShortOutageEndsNothing(t *testing.T) {
	watching(t, func(s *sight) {
		held := s.Held()
		require.False(t, s.Doubt())
		s.down.Store(true)
		time.Sleep(2 * askEvery)
		require.True(t, s.Doubt(), "nobody can tell how old what comes now is")
		time.Sleep(Limit - 3*askEvery)
		s.down.Store(false)
		time.Sleep(5 * askEvery)
		synctest.Wait()
		require.NoError(t, s.Check(held))
		require.True(t, s.Doubt(), "what comes now may have been under way for most of its time")
		time.Sleep(contract.HeartbeatTimeout)
		synctest.Wait()
		require.False(t, s.Doubt())
	})
}

// The last heartbeat that the server knows may be two seconds older than its last answer.
func TestContact_CallsEndBeforeTheServerHandsTheirChunksOn(t *testing.T) {
	watching(t, func(s *sight) {
		held, answered := s.Held(), s.now()
		s.down.Store(true)
		<-held.Done()
		require.Less(t, s.now()-answered, contract.HeartbeatTimeout-2*time.Second)
		require.ErrorIs(t, context.Cause(held), errSilence)
		require.ErrorIs(t, context.Cause(held), slot.ErrLapsed, "no grace")
		require.ErrorIs(t, context.Cause(s.Held()), errSilence, "the server is still away")
		s.down.Store(false)
		time.Sleep(3 * askEvery)
		synctest.Wait()
		require.NoError(t, s.Check(s.Held()), "later calls run")
		require.ErrorIs(t, s.Check(held), errSilence, "what was given up stays so")
		require.True(t, s.Doubt(), "what was asked for before may come yet")
		time.Sleep(openPoll)
		require.False(t, s.Doubt())
	})
}

// A clock that jumped is noticed by whoever asks first, before anything counts or begins.
func TestContact_AfterAPauseNothingOldCounts(t *testing.T) {
	for _, first := range []string{"check", "held", "doubt", "run"} {
		watching(t, func(s *sight) {
			held := s.Held()
			s.jumped.Store(int64(12 * time.Second))
			switch first {
			case "check":
				require.ErrorIs(t, s.Check(held), errSilence)
			case "held":
				require.ErrorIs(t, context.Cause(s.Held()), errSilence)
			case "doubt":
				require.True(t, s.Doubt())
			case "run":
				time.Sleep(askEvery)
				synctest.Wait()
			}
			require.ErrorIs(t, context.Cause(held), errSilence)
			time.Sleep(2 * askEvery)
			synctest.Wait()
			require.NoError(t, s.Check(s.Held()), "it goes on")
			require.True(t, s.Doubt())
			lines := s.seen.FilterLevelExact(zap.WarnLevel).All()
			require.Len(t, lines, 1)
			require.Regexp(t, `^this worker was stopped for 1[23]s; what ran on it is given up, since its items may run elsewhere$`, lines[0].Message)
		})
	}
}

func TestContact_AShortPauseEndsNothing(t *testing.T) {
	watching(t, func(s *sight) {
		held := s.Held()
		s.jumped.Store(int64(Limit - 2*askEvery))
		require.NoError(t, s.Check(held))
		time.Sleep(2 * askEvery)
		synctest.Wait()
		require.NoError(t, s.Check(held))
		require.Zero(t, s.seen.FilterLevelExact(zap.WarnLevel).Len())
	})
}
