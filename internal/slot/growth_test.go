package slot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/wire"
)

const mib = 1 << 20

// holder is a process that holds what the test says.
type holder struct {
	session.Watched
	held int64
}

func (h *holder) Held() int64    { return h.held }
func (h *holder) Measure() int64 { return h.held }

// growing is the account of a process with a budget of 1000 MiB.
func growing() (*account, *holder, *session.Session) {
	h := &holder{}
	s := &session.Session{Memory: session.Memory{Watched: h, Budget: 1000 * mib}}
	return newAccount(s, 0), h, s
}

func TestAccount_ReplacesAProcessThatHasGrown(t *testing.T) {
	for name, c := range map[string]struct {
		first, peak, held, unused int64
		replaced                  bool
	}{
		"a leak":                              {100, 0, 910, 0, true},
		"a leak beside an arena that is free": {100, 0, 990, 80, true},
		"with what items peak above it":       {100, 1600, 610, 0, true},
		"enough room for now":                 {100, 0, 890, 0, false},
		"an arena that is nearly free":        {100, 0, 990, 800, false},
		"a new process would need as much":    {850, 0, 920, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, h, s := growing()
			a.send(3)
			h.held = c.first * mib
			a.ran++
			a.ended(1, 1, c.peak*mib)
			h.held = c.held * mib
			s.Memory.Report(&wire.Allocators{Reserved: c.unused * mib})
			s.Memory.Now()
			require.Equal(t, c.replaced, a.grown(false), "it gets nothing more while an item runs")
			require.False(t, a.full())
			a.ran++
			a.ran++
			require.False(t, a.grown(true))
			require.Equal(t, c.replaced, a.full())
			if why, text := a.replaced(); a.full() {
				require.Equal(t, forFull, why)
				require.Contains(t, text, "of 1000MiB are needed between items, ")
			}
		})
	}
}

// What only the items amid their work need is no growth, and is looked at once.
func TestAccount_ItemsThatPeakAreNoGrowth(t *testing.T) {
	a, h, s := growing()
	a.send(9)
	h.held = 100 * mib
	a.ran++
	a.ended(1, 1, 0)
	h.held = 950 * mib
	s.Memory.Now()
	require.True(t, a.grown(false))
	h.held = 100 * mib
	require.False(t, a.grown(true))
	h.held = 950 * mib
	s.Memory.Now()
	require.False(t, a.grown(false))
	h.held = 960 * mib
	s.Memory.Now()
	require.True(t, a.grown(false), "more than that")
	_, text := a.replaced()
	require.Empty(t, text)
}

// Near its budget a process gets nothing ahead, so that it is seen after each item.
func TestAccount_NothingAheadNearTheBudget(t *testing.T) {
	a, h, s := growing()
	a.ended(1, 0.0001, 0)
	require.Greater(t, a.ahead(1), 8)
	h.held = 760 * mib
	s.Memory.Now()
	require.Equal(t, 1, a.ahead(1))
}
