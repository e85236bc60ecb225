package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

// errAway is what the frontend says while the history service is away.
var errAway = serviceerror.NewUnavailable("shard status unknown")

// sight is a contact whose server can be away and whose clock can jump, with an activity
// that heartbeats.
type sight struct {
	*contact
	*pulse
	ctx    context.Context
	down   atomic.Bool
	jumped atomic.Int64
	seen   *observer.ObservedLogs
}

func (s *sight) answer(context.Context) error {
	if s.down.Load() {
		return errAway
	}
	return nil
}

// check asks whether the activity must end.
func (s *sight) check() error { return checkContact(contactOf(s.ctx)) }

// watching runs f beside an activity that has had some answers.
func watching(t *testing.T, f func(s *sight)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		s := &sight{seen: seen}
		began := time.Now()
		s.contact = newContact(func() time.Duration { return time.Hour + time.Since(began) + time.Duration(s.jumped.Load()) }, zap.New(core))
		running, end := context.WithCancel(t.Context())
		followed, stop := s.Follow(t.Context(), contract.HeartbeatTimeout)
		s.ctx, s.pulse = followed, followed.Value(pulseKey{}).(*pulse)
		beating := make(chan struct{})
		go func() {
			defer close(beating)
			for running.Err() == nil {
				_ = s.beat(followed, s.answer)
				time.Sleep(contract.HeartbeatEvery)
			}
		}()
		defer func() {
			end()
			stop()
			<-beating
		}()
		time.Sleep(2*contract.HeartbeatEvery + time.Millisecond)
		synctest.Wait()
		f(s)
	})
}

func TestContact_ActivitiesEndBeforeTheServerHandsThemOn(t *testing.T) {
	watching(t, func(s *sight) {
		held, answered := contactOf(s.ctx), s.pulse.answered
		beside, stop := s.Follow(context.Background(), contract.HeartbeatTimeout)
		defer stop()
		s.down.Store(true)
		<-held.Done()
		require.Equal(t, contract.HeartbeatTimeout-contract.Ending+time.Millisecond, s.now()-answered)
		require.ErrorIs(t, context.Cause(held), calls.ErrLapsed, "no grace")
		<-contactOf(beside).Done()
		synctest.Wait()
		require.ErrorIs(t, context.Cause(s.ctx), calls.ErrLapsed)
		lines := s.seen.All()
		require.Len(t, lines, 1, "it is said once")
		require.Contains(t, lines[0].Message, "what ran on it is given up, since its items may run elsewhere")
		s.down.Store(false)
		time.Sleep(contract.HeartbeatEvery)
		synctest.Wait()
		require.ErrorIs(t, s.check(), errSilence, "what was given up stays so")
		require.ErrorIs(t, s.beat(context.Background(), s.answer), errSilence)
		later, stop := s.Follow(context.Background(), contract.HeartbeatTimeout)
		defer stop()
		require.NoError(t, checkContact(contactOf(later)), "later activities run")
	})
}

// The server counts from the start of an activity that has sent no heartbeat. Those of
// others prove nothing.
func TestContact_OnlyHeartbeatsProlongAnActivity(t *testing.T) {
	watching(t, func(s *sight) {
		began := s.now()
		silent, stop := s.Follow(context.Background(), 20*time.Second)
		defer stop()
		<-contactOf(silent).Done()
		require.LessOrEqual(t, s.now()-began, 19*time.Second-contract.Arrival+time.Millisecond)
		require.NoError(t, s.check(), "the other activity's heartbeats are answered")
	})
}

// A clock that jumped is noticed by whoever asks first, before anything counts.
func TestContact_AfterAPauseNothingOldCounts(t *testing.T) {
	for _, first := range []string{"check", "beat", "nobody"} {
		watching(t, func(s *sight) {
			s.jumped.Store(int64(25 * time.Second))
			switch first {
			case "check":
				require.ErrorIs(t, s.check(), errSilence)
			case "beat":
				require.ErrorIs(t, s.beat(context.Background(), s.answer), errSilence)
			case "nobody":
				time.Sleep(contactEvery)
				synctest.Wait()
				require.ErrorIs(t, s.ctx.Err(), context.Canceled, "also while nobody asks")
			}
			require.ErrorIs(t, s.check(), errSilence)
		})
	}
}

// A heartbeat ends with an answer, whatever it says, and with the activity's context.
func TestContact_AHeartbeatEndsWithAnAnswer(t *testing.T) {
	watching(t, func(s *sight) {
		followed, stop := s.Follow(context.Background(), contract.HeartbeatTimeout)
		defer stop()
		p := followed.Value(pulseKey{}).(*pulse)
		for _, answer := range []error{nil, serviceerror.NewNotFound("a newer attempt"), serviceerror.NewPermissionDenied("", ""),
			temporal.NewCanceledError(), activity.ErrActivityPaused, activity.ErrActivityReset} {
			tries := 0
			require.Equal(t, answer, p.beat(context.Background(), func(context.Context) error {
				if tries++; tries < 3 {
					return errAway
				}
				return answer
			}))
			require.Equal(t, 3, tries)
		}
		ended, end := context.WithCancelCause(context.Background())
		stops := errors.New("the worker stops")
		require.ErrorIs(t, p.beat(ended, func(context.Context) error { end(stops); return errAway }), stops)
		require.ErrorIs(t, p.beat(ended, func(ctx context.Context) error { require.NoError(t, ctx.Err()); return errAway }), errAway,
			"one more, for the next attempt")
	})
}

// The server cuts a heartbeat timeout to that of the workflow. That is no silence: the
// activity goes on until the workflow ends.
func TestContact_AShortTimeoutIsNoSilence(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, contract.HeartbeatTimeout} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			k := newContact(func() time.Duration { return time.Hour + time.Since(began) }, zap.NewNop())
			followed, stop := k.Follow(t.Context(), timeout)
			defer stop()
			p := followed.Value(pulseKey{}).(*pulse)
			for range 20 {
				time.Sleep(contract.PauseOf(timeout))
				require.NoError(t, p.beat(followed, func(context.Context) error { return nil }), "%s", timeout)
			}
			require.NoError(t, followed.Err())
			time.Sleep(timeout)
			require.ErrorIs(t, context.Cause(followed), calls.ErrLapsed, "before the server hands it on")
		})
	}
}
