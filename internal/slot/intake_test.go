package slot_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// faltering gives the items of a list, and then calls then.
func faltering(list []any, then func(yield func(calls.Item, error) bool)) iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		for item, err := range gputest.Values(list...) {
			if !yield(item, err) {
				return
			}
		}
		then(yield)
	}
}

func plain(i int) calls.Item {
	return calls.Item{Index: int64(i), Value: fmt.Appendf(nil, `{"i":%d}`, i)}
}

// Items that have come run while the source is slow. The wait for the source does not
// count as an item's time.
func TestIntake_ItemsDoNotWaitForTheSource(t *testing.T) {
	t.Parallel()
	for _, quiet := range []bool{false, true} {
		t.Run(fmt.Sprintf("quiet=%t", quiet), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			task := s.task("item")
			if quiet {
				task = s.task("item", "QUIET", "1")
			}
			task.Python = "board.py:item"
			ran := make(chan struct{})
			var got []calls.Done
			err := s.Run(t.Context(), task, slot.Call{Call: calls.Call{Timeout: patience}, Work: &gputest.Work{From: faltering(quick(50, 0, nil), func(yield func(calls.Item, error) bool) {
				select {
				case <-ran:
				case <-time.After(30 * time.Second):
					yield(calls.Item{}, errors.New("the items before were not run"))
					return
				}
				<-time.After(2 * patience)
				for i := 50; i < 100 && yield(plain(i), nil); i++ {
				}
			}), OnDone: func(d calls.Done) {
				if got = append(got, d); len(got) == 50 {
					close(ran)
				}
			}}})
			require.NoError(t, err)
			sequence(t, got, 100)
			require.Len(t, s.begun(), 100, "each ran once")
		})
	}
}

// A source that hangs delays no running item, and does not disturb the next call.
func TestIntake_ASourceThatHangs(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"timeout", "cancel", "lapsed", "stop"} {
		for _, where := range []string{"behind an item", "first", "between"} {
			if how == "timeout" && where != "behind an item" {
				continue
			}
			t.Run(how+" "+where, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, gpumux.ModePersistent)
				task := s.task("item")
				task.Python = "board.py:item"
				list, done := []any(nil), 0
				switch where {
				case "behind an item":
					list, done = quick(81, 80, object{"how": "hang"}), 80
				case "between":
					list, done = quick(80, 0, nil), 80
				}
				hangs, hold, more := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var got []calls.Done
				all := make(chan struct{})
				call := slot.Call{Work: &gputest.Work{From: faltering(list, func(yield func(calls.Item, error) bool) {
					close(hangs)
					<-hold
					more <- yield(plain(done), nil)
				}), OnDone: func(d calls.Done) {
					if got = append(got, d); len(got) == done {
						close(all)
					}
				}}}
				lapsed := make(chan struct{})
				call.Held = func() error {
					select {
					case <-lapsed:
						return calls.ErrLapsed
					default:
						return nil
					}
				}
				if how == "timeout" {
					call.Timeout = patience
				}
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx, task, call) }()
				<-hangs
				if done > 0 {
					<-all
				}
				var err error
				switch enough := errors.New("enough"); how {
				case "timeout":
					err = <-ended
					require.Equal(t, gpumux.FaultTimeout, fault(t, err).Kind)
				case "cancel":
					cancel(enough)
					err = <-ended
					require.ErrorIs(t, err, enough)
				case "lapsed":
					close(lapsed)
					err = <-ended
					require.ErrorIs(t, err, calls.ErrLapsed)
				case "stop":
					require.NoError(t, s.Stop(t.Context()))
					err = <-ended
					require.ErrorIs(t, err, slot.ErrStopped)
				}
				sequence(t, got, done)
				if how != "stop" {
					s.works()
				}
				close(hold)
				require.False(t, <-more, "nobody wants it any more")
				require.Len(t, got, done)
			})
		}
	}
}

// The items before an error run and count. Then the call ends with the error, and the
// process stays.
func TestIntake_ASourceThatFails(t *testing.T) {
	t.Parallel()
	for _, quiet := range []string{"", "1"} {
		t.Run("quiet="+quiet, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.ModePersistent)
			task := s.task("item", "QUIET", quiet)
			task.Python = "board.py:item"
			gate, reset := filepath.Join(t.TempDir(), "gate"), errors.New("connection reset")
			got, err := s.run(task, slot.Call{Work: &gputest.Work{From: faltering(quick(40, 39, object{"how": "gate", "gate": gate}), func(yield func(calls.Item, error) bool) {
				yield(calls.Item{}, reset)
				os.WriteFile(gate, nil, 0o644)
			})}})
			require.ErrorIs(t, err, reset)
			sequence(t, got, 40)
			require.Len(t, s.begun(), 40)
			require.Equal(t, slot.Ready, s.State())
		})
	}
}

// The slot pulls few items ahead if they are larger than a frame, whatever the size of a
// micro-batch.
func TestIntake_LargeItemsAreNotPulledFarAhead(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	task := s.task("items")
	task.Python = "board.py:items"
	var pulled, highest atomic.Int64
	done := 0
	err := s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{OnDone: func(calls.Done) { done++; pulled.Add(-1) }, From: func(yield func(calls.Item, error) bool) {
		for item, err := range gputest.Values(quick(40, 0, nil)...) {
			item.Value = append(item.Value[:len(item.Value)-1], fmt.Sprintf(`,"pad":%q}`, strings.Repeat("x", 2<<20))...)
			highest.Store(max(highest.Load(), pulled.Add(1)))
			if !yield(item, err) {
				return
			}
		}
	}}})
	require.NoError(t, err)
	require.Equal(t, 40, done)
	require.LessOrEqual(t, highest.Load(), int64(4))
}
