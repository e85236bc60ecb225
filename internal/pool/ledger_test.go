package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
)

// layout is a worker with random pools on random devices, and who uses each device.
type layout struct {
	pools  []*Pool
	groups [][]string // of each pool

	mu    sync.Mutex
	users map[string]map[*Seat]bool // by device: the calls there, and whether each has it whole
	wrong []string
}

func randomLayout(r *rand.Rand) *layout {
	l := &layout{users: map[string]map[*Seat]bool{}}
	ledger, devices := NewLedger(), 1+r.IntN(6)
	for p := range 1 + r.IntN(4) {
		k := 1 + r.IntN(min(3, devices))
		order := r.Perm(devices)
		var seats []*Seat
		var groups []string
		for group := range slices.Chunk(order[:1+r.IntN(devices)], k) {
			if len(group) < k {
				break
			}
			var names []string
			for _, d := range group {
				names = append(names, fmt.Sprintf("GPU-%d", d))
				l.users[names[len(names)-1]] = map[*Seat]bool{}
			}
			groups = append(groups, strings.Join(names, ","))
			for range 1 + r.IntN(3) {
				seats = append(seats, &Seat{Slot: gputest.NewSlot(), Group: strings.Join(names, ","), Devices: names})
			}
		}
		if len(seats) > 0 {
			l.pools = append(l.pools, ledger.New(fmt.Sprintf("pool%d", p), seats))
			l.groups = append(l.groups, groups)
		}
	}
	return l
}

// enter notes a call, and what must not be.
func (l *layout) enter(h *Seat, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range h.Devices {
		if _, twice := l.users[d][h]; twice {
			l.wrong = append(l.wrong, "two calls in one slot on "+d)
		}
		for _, alone := range l.users[d] {
			if whole || alone {
				l.wrong = append(l.wrong, "a call beside one that has "+d+" to itself")
			}
		}
		l.users[d][h] = whole
	}
}

func (l *layout) leave(h *Seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range h.Devices {
		delete(l.users[d], h)
	}
}

// No device is given twice, whatever the pools and the calls are, every call gets its
// turn, and nothing waits for ever. A deadlock would end the test.
func TestLedger_GivesNoDeviceTwiceAndEachCallItsTurn(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			l := randomLayout(r)
			if len(l.pools) == 0 {
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := time.Now()
			var all sync.WaitGroup
			for range 60 {
				at := r.IntN(len(l.pools))
				want := Want{Task: fmt.Sprint("t", r.IntN(3)), Whole: r.IntN(5) == 0}
				if r.IntN(4) == 0 {
					only := l.groups[at][r.IntN(len(l.groups[at]))]
					want.Avoid = slices.DeleteFunc(slices.Clone(l.groups[at]), func(group string) bool { return group == only })
				} else if r.IntN(4) == 0 {
					want.Avoid = l.groups[at][:1]
				}
				after, length := time.Duration(r.IntN(20))*time.Second, time.Duration(1+r.IntN(30))*time.Second
				gone := r.IntN(10) == 0
				all.Go(func() {
					time.Sleep(after)
					ctx := ctx
					if gone {
						var end context.CancelFunc
						ctx, end = context.WithTimeout(ctx, length)
						defer end()
					}
					h, err := l.pools[at].Acquire(ctx, want)
					if err != nil {
						return
					}
					l.enter(h, want.Whole)
					time.Sleep(length)
					l.leave(h)
					l.pools[at].Release(h)
				})
			}
			all.Wait()
			require.Empty(t, l.wrong, "seed %d", seed)
			require.Less(t, time.Since(began), 3*time.Hour, "seed %d: in the time of the test", seed)
			for _, p := range l.pools {
				require.Zero(t, p.Load().Busy, "seed %d", seed)
				require.Empty(t, p.waiting, "seed %d", seed)
			}
			require.Nil(t, l.pools[0].ledger.claim, "seed %d", seed)
		})
	}
}
