package slot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/wire"
)

// sparing counts how often it is asked what a process holds.
type sparing struct {
	session.Watched
	times int
}

func (r *sparing) Held() int64 {
	r.times++
	return 1 << 20
}

// A short item costs mostly its messages, so many items go in one frame. Without a budget
// nobody looks at the memory of the process.
func TestAccount_ShortItemsAreGivenManyAhead(t *testing.T) {
	for _, c := range []struct {
		pace        time.Duration
		ended, want int
	}{
		{0, 0, 1}, {time.Microsecond, 0, 8001}, {time.Microsecond, 1 << 20, mostAhead}, {100 * time.Microsecond, 0, 81},
		{time.Millisecond, 0, 9}, {time.Millisecond, 240, 11}, {time.Millisecond, 480, 21}, {time.Millisecond, 1 << 20, 65},
		{14 * time.Millisecond, 0, 2}, {14 * time.Millisecond, 100, 5}, {longItem, 1 << 20, 1}, {time.Minute, 0, 1},
	} {
		watched := &sparing{}
		a := newAccount(&session.Session{Board: &wire.Board{}, Memory: session.Memory{Watched: watched}}, 0)
		a.pace = c.pace
		require.Equal(t, c.want, a.ahead(c.ended), "%+v", c)
		require.Zero(t, watched.times)
		a.growth.budget = 1 << 30
		a.ahead(c.ended)
		require.Equal(t, 1, watched.times)
	}
}
