package workers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// loading is a slot whose process has been starting since then.
type loading struct {
	*gputest.Slot
	since time.Time
}

func (s *loading) Stats() slot.Stats {
	return slot.Stats{Starting: &slot.Start{Task: "embed", Began: s.since}}
}

func TestWorker_TellsOfALongStartOncePerTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.WarnLevel)
		first, second := &loading{gputest.NewSlot(), time.Now()}, &loading{gputest.NewSlot(), time.Now().Add(20 * time.Second)}
		w := &Worker{log: zap.New(core), notices: &notice.List{}, pools: []*pool.Pool{pool.NewLedger().New("gpu", []*pool.Seat{{Slot: first}, {Slot: second}})}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.watchStarts(ctx)
		time.Sleep(longStart - time.Millisecond)
		require.Empty(t, seen.All())
		time.Sleep(startAgain)
		synctest.Wait()
		require.Equal(t, 1, seen.Len())
		require.Contains(t, seen.All()[0].Message, "embed: a process has been starting for 30s (importing)")
	})
}
