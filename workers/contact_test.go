package workers

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// barrier remembers the deadline that it was given, also where it can not be set, for the next warden; 0 is none.
type barrier struct {
	mu    sync.Mutex
	until time.Duration
	// err is why it can not be set, or nil.
	err error
	// before is called before anything is set, and may block; nil does nothing.
	before func(until time.Duration)
}

func (b *barrier) Hold(until time.Duration) error {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	if before != nil {
		before(until)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	return b.err
}

func (b *barrier) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *barrier) Free() error { return b.Hold(0) }

func (b *barrier) intercept(before func(until time.Duration)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = before
}

func (b *barrier) deadline() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

// sight is a contact whose server can be away and whose clock can jump.
type sight struct {
	*contact
	down    atomic.Bool
	jumped  atomic.Int64
	barrier barrier
	seen    *observer.ObservedLogs
}

// watching runs f beside a contact that has had some answers.
func watching(t *testing.T, f func(s *sight)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		s := &sight{seen: seen}
		began := time.Now()
		s.contact = startContact(&contact{
			log: zap.New(core), fence: &s.barrier,
			now: func() time.Duration { return time.Hour + time.Since(began) + time.Duration(s.jumped.Load()) },
			ask: func(context.Context) error {
				if s.down.Load() {
					return errors.New("connection refused")
				}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()
		time.Sleep(5*askEvery + time.Millisecond)
		synctest.Wait()
		f(s)
		cancel()
		<-done
	})
}

// still is a contact that asks nothing by itself and whose clock only jumps.
func still() *sight {
	s := &sight{}
	s.contact = startContact(&contact{
		log: zap.NewNop(), fence: &s.barrier, now: func() time.Duration { return time.Hour + time.Duration(s.jumped.Load()) },
	})
	return s
}

func TestContact_AShortOutageEndsNothing(t *testing.T) {
	watching(t, func(s *sight) {
		held := s.held()
		require.False(t, s.doubt())
		s.down.Store(true)
		time.Sleep(2 * askEvery)
		require.True(t, s.doubt(), "nobody can tell how old what comes now is")
		time.Sleep(lease - 3*askEvery)
		s.down.Store(false)
		time.Sleep(5 * askEvery)
		synctest.Wait()
		require.NoError(t, s.check(held))
		require.True(t, s.doubt(), "what comes now may have been under way for most of its time")
		time.Sleep(gpumux.HeartbeatTimeout)
		synctest.Wait()
		require.False(t, s.doubt())
	})
}

// The last heartbeat that the server knows may be two seconds older than its last answer.
func TestContact_CallsEndBeforeTheServerHandsTheirChunksOn(t *testing.T) {
	watching(t, func(s *sight) {
		held, answered := s.held(), s.now()
		s.down.Store(true)
		<-held.Done()
		require.Less(t, s.now()-answered, gpumux.HeartbeatTimeout-2*time.Second)
		require.ErrorIs(t, context.Cause(held), errSilence)
		require.ErrorIs(t, context.Cause(held), slot.ErrLapsed, "no grace")
		_, err := s.begin(s.held())
		require.ErrorIs(t, err, errSilence, "the server is still away")
		s.down.Store(false)
		time.Sleep(3 * askEvery)
		synctest.Wait()
		end, err := s.begin(s.held())
		require.NoError(t, err, "later calls run")
		end()
		require.ErrorIs(t, s.check(held), errSilence, "what was given up stays so")
		require.True(t, s.doubt(), "what was asked for before may come yet")
		time.Sleep(openPoll)
		require.False(t, s.doubt())
	})
}

// The fence has a deadline while calls run, never one that is too late, and it is put off only while the server answers.
func TestContact_TheFenceStandsWhileCallsRun(t *testing.T) {
	watching(t, func(s *sight) {
		require.Zero(t, s.barrier.deadline())
		one, err := s.begin(s.held())
		require.NoError(t, err)
		two, err := s.begin(s.held())
		require.NoError(t, err)
		for range 3 {
			time.Sleep(askEvery)
			synctest.Wait()
			require.Greater(t, s.barrier.deadline(), s.now()+lease-askEvery)
			require.Less(t, s.barrier.deadline(), s.now()+gpumux.HeartbeatTimeout-2*time.Second)
		}
		s.down.Store(true)
		last := s.barrier.deadline()
		time.Sleep(4 * askEvery)
		synctest.Wait()
		require.Equal(t, last, s.barrier.deadline())
		one()
		require.Equal(t, last, s.barrier.deadline())
		two()
		require.Zero(t, s.barrier.deadline())
	})
}

// Without a fence no call begins, and those that run go on; it is said once.
func TestContact_WithoutAFenceNothingBegins(t *testing.T) {
	watching(t, func(s *sight) {
		end, err := s.begin(s.held())
		require.NoError(t, err)
		s.barrier.fail(errors.New("no warden"))
		time.Sleep(3 * askEvery)
		synctest.Wait()
		require.NoError(t, s.check(s.held()))
		end()
		for range 2 {
			_, err = s.begin(s.held())
			require.ErrorContains(t, err, "no warden")
			require.Zero(t, s.barrier.deadline(), "the next warden ends nothing that waits")
		}
		require.Len(t, s.seen.FilterLevelExact(zap.ErrorLevel).All(), 1)
		s.barrier.fail(nil)
		end, err = s.begin(s.held())
		require.NoError(t, err)
		require.NotZero(t, s.barrier.deadline())
		end()
		require.Zero(t, s.barrier.deadline())
	})
}

// While the fence hangs, such as where its warden does or another can not be started, what runs is looked after as ever, others
// begin under the deadline that it has, and contact that is lost ends them all.
func TestContact_AFenceThatHangsHoldsNothingUp(t *testing.T) {
	watching(t, func(s *sight) {
		held := s.held()
		one, err := s.begin(held)
		require.NoError(t, err)
		last, open := s.barrier.deadline(), make(chan struct{})
		s.barrier.intercept(func(time.Duration) { <-open })
		time.Sleep(2 * lease)
		require.NoError(t, s.check(held))
		require.False(t, s.doubt())
		require.Equal(t, last, s.barrier.deadline())
		two, err := s.begin(held)
		require.NoError(t, err)
		s.down.Store(true)
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), errSilence)
		_, err = s.begin(s.held())
		require.ErrorIs(t, err, errSilence)
		s.down.Store(false)
		close(open)
		time.Sleep(2 * askEvery)
		synctest.Wait()
		require.Greater(t, s.barrier.deadline(), s.now()+lease-2*askEvery, "what runs has its deadline")
		one()
		require.NotZero(t, s.barrier.deadline())
		two()
		require.Zero(t, s.barrier.deadline())
	})
}

// Where the last call ends and the fence is about to lose its deadline, one that begins waits for its own. The same where contact
// was lost: what the old deadline ends has ended before another call begins.
func TestContact_ACallThatBeginsWaitsForItsOwnDeadline(t *testing.T) {
	for _, c := range []string{"Free", "Lapse"} {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			s := still()
			before, err := s.begin(s.held())
			require.NoError(t, err)
			reached, open := make(chan struct{}), make(chan struct{})
			var set atomic.Bool
			var once sync.Once
			s.barrier.intercept(func(until time.Duration) {
				once.Do(func() { close(reached) })
				<-open
				set.Store(until > 0)
			})
			if c == "Free" {
				go before()
			} else {
				s.jumped.Store(int64(lease + time.Second))
				require.ErrorIs(t, s.check(s.held()), errSilence)
				s.answer(s.now(), nil)
				go s.renew()
			}
			<-reached
			begun := make(chan bool)
			go func() {
				_, err := s.begin(s.held())
				begun <- err == nil && set.Load()
			}()
			calls := map[string]int{"Free": 1, "Lapse": 2}[c]
			require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.calls == calls }, time.Minute, time.Millisecond)
			close(open)
			require.True(t, <-begun)
			require.Equal(t, s.now()+fenced, s.barrier.deadline())
		})
	}
}

// Calls begin and end at any time, beside answers: the fence has a deadline from before each begins until after it ends, never one
// that is later than the last answer allows, and none in the end.
func TestContact_TheDeadlineIsRightHoweverCallsMeet(t *testing.T) {
	t.Parallel()
	s := still()
	s.barrier.intercept(func(until time.Duration) {
		s.mu.Lock() // nothing waits for the fence with this
		defer s.mu.Unlock()
		if until > s.answered+fenced {
			t.Errorf("%s after an answer at %s", until, s.answered)
		}
	})
	stop := make(chan struct{})
	var answering, calling sync.WaitGroup
	answering.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.jumped.Add(int64(time.Millisecond))
				s.answer(s.now(), nil)
				s.renew()
			}
		}
	})
	for range 4 {
		calling.Go(func() {
			for range 5000 {
				end, err := s.begin(s.held())
				if err != nil || s.barrier.deadline() == 0 {
					t.Error("begun without a deadline", err)
					return
				}
				runtime.Gosched()
				if s.barrier.deadline() == 0 {
					t.Error("the deadline went while a call ran")
				}
				end()
			}
		})
	}
	calling.Wait()
	close(stop)
	answering.Wait()
	require.Zero(t, s.barrier.deadline())
	require.False(t, s.stands)
}

// A clock that jumped is noticed by whoever asks first, before anything counts or begins.
func TestContact_AfterAPauseNothingOldCounts(t *testing.T) {
	for _, first := range []string{"check", "begin", "doubt", "run"} {
		watching(t, func(s *sight) {
			held := s.held()
			end, err := s.begin(held)
			require.NoError(t, err)
			s.jumped.Store(int64(12 * time.Second))
			switch first {
			case "check":
				require.ErrorIs(t, s.check(held), errSilence)
			case "begin":
				_, err := s.begin(held)
				require.ErrorIs(t, err, errSilence)
			case "doubt":
				require.True(t, s.doubt())
			case "run":
				time.Sleep(askEvery)
				synctest.Wait()
			}
			require.ErrorIs(t, context.Cause(held), errSilence)
			end()
			time.Sleep(2 * askEvery)
			synctest.Wait()
			require.NoError(t, s.check(s.held()), "it goes on")
			require.True(t, s.doubt())
			lines := s.seen.FilterLevelExact(zap.WarnLevel).All()
			require.Len(t, lines, 1)
			require.Regexp(t, `^this worker was stopped for 1[23]s; its task processes were ended because their items may run elsewhere$`, lines[0].Message)
		})
	}
}

func TestContact_AShortPauseEndsNothing(t *testing.T) {
	watching(t, func(s *sight) {
		held := s.held()
		s.jumped.Store(int64(lease - 2*askEvery))
		require.NoError(t, s.check(held))
		time.Sleep(2 * askEvery)
		synctest.Wait()
		require.NoError(t, s.check(held))
		require.Zero(t, s.seen.FilterLevelExact(zap.WarnLevel).Len())
	})
}
