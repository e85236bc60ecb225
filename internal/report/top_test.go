package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

// cluster is a snapshot of so many workers of eight slots, in which each slot has
// finished so many items.
func cluster(workers int, at time.Time, items int64) Snapshot {
	s := Snapshot{At: at}
	for w := range workers {
		offer := &contract.WorkerInfo{}
		p := contract.PoolInfo{Name: "gpu", Slots: 8, Memory: 8 << 30}
		for i := range 8 {
			seat := contract.SlotInfo{Name: fmt.Sprintf("gpu/%d", i), Device: "GPU-5c89f0b2", State: "busy", Task: "embed", PID: 100 + i, Map: "embed-3fa92c01d4e5",
				Held: gpumux.Size(i) << 30, Items: items * int64(i+1), Faults: int64(w * i % 5)}
			if i%4 == 3 {
				seat.State, seat.Map, seat.Task, seat.Held = "vacant", "", "", 0
			}
			p.Seats = append(p.Seats, seat)
		}
		offer.Pools = []contract.PoolInfo{p}
		s.Workers = append(s.Workers, fleet.Worker{Identity: fmt.Sprintf("node-%02d/4711", w), Offer: offer})
	}
	s.Maps = []starter.MapInfo{
		{ID: "embed-3fa92c01d4e5", Items: 1_000_000, Succeeded: 100 * items, Failed: 3},
		{ID: "score-77aa", Items: -1, Succeeded: 5, Paused: true},
	}
	return s
}

// shownTop is the picture after two snapshots, ten seconds apart, and keys.
func shownTop(t *testing.T, workers, width, height int, keys ...string) string {
	t.Helper()
	m := &model{o: TopOptions{Title: "127.0.0.1:7233", Every: time.Second}, ctx: t.Context()}
	at := time.Unix(1_700_000_000, 0)
	for _, msg := range []tea.Msg{tea.WindowSizeMsg{Width: width, Height: height}, looked{Snapshot: cluster(workers, at, 100)},
		looked{Snapshot: cluster(workers, at.Add(10*time.Second), 600)}} {
		m.Update(msg)
	}
	for _, key := range keys {
		m.key(key)
	}
	return m.View()
}

func TestView_FitsASmallTerminal(t *testing.T) {
	for name, keys := range map[string][]string{"place": nil, "busy": {"b", "end"}} {
		got := shownTop(t, 100, 80, 24, keys...)
		lines := strings.Split(got, "\n")
		require.Len(t, lines, 24)
		for _, line := range lines {
			for _, style := range []string{bold, reverse, red, noStyle} {
				line = strings.ReplaceAll(line, style, "")
			}
			require.LessOrEqual(t, runewidth.StringWidth(line), 80, line)
		}
		golden(t, "top_"+name, got)
	}
}

func TestModel_Keys(t *testing.T) {
	require.Contains(t, shownTop(t, 100, 80, 24, "end"), "node-99/4711   gpu/7")
	require.Equal(t, shownTop(t, 100, 80, 24), shownTop(t, 100, 80, 24, "pgup", "k", "pgdown", "home"))
	require.Equal(t, shownTop(t, 100, 80, 24), shownTop(t, 100, 80, 24, "b", "b"))
	require.Contains(t, shownTop(t, 1, 80, 24, "b", "pgdown"), "1-6 of 6, slots that work")
	require.NotPanics(t, func() { shownTop(t, 3, 20, 3, "end", "b") })
}

func TestModel_ErrorsStandAboveTheLastPicture(t *testing.T) {
	m := &model{o: TopOptions{Look: func(context.Context) (Snapshot, error) { return Snapshot{}, errors.New("no answer from the server") }}, ctx: t.Context(), width: 80, height: 24}
	require.Contains(t, m.View(), "asking the workers")
	m.Update(looked{Snapshot: cluster(1, time.Now(), 1)})
	_, next := m.Update(m.look())
	require.NotNil(t, next, "it asks again")
	require.Contains(t, m.View(), "no answer from the server")
	require.Contains(t, m.View(), "gpu/7")
	silent := cluster(1, time.Now(), 1)
	silent.Workers[0].Offer = nil
	silent.Workers[0].Identity += "\x1b[2J"
	m.Update(looked{Snapshot: silent})
	require.Contains(t, m.View(), "no answer from node-00/4711?[2J")
}

// Stages stand below their map where that leaves half of the picture to the slots.
func TestView_Stages(t *testing.T) {
	s := cluster(1, time.Now(), 1)
	s.Maps[1].Stages = staged()
	for height, want := range map[int]bool{24: true, 12: true, 10: false} {
		m := &model{width: 120, height: height}
		m.take(s)
		require.Equal(t, want, strings.Contains(m.View(), "\n  "+strings.Join(StageLines(staged()), "\n  ")+"\n"), "%d", height)
		require.Len(t, strings.Split(m.View(), "\n"), height)
	}
}

// A start that takes long is no mystery.
func TestView_Starting(t *testing.T) {
	s := cluster(1, time.Now(), 1)
	seat := &s.Workers[0].Offer.Pools[0].Seats[0]
	seat.State, seat.Task, seat.For = "starting", "embed", gpumux.Duration(3*time.Minute)
	m := &model{width: 160, height: 24}
	m.take(s)
	require.Contains(t, m.View(), "embed has been importing for 3m0s  embed-3fa92c01d4e5")
}

// What an item reports of itself stands before the map.
func TestView_Progress(t *testing.T) {
	item := int64(7)
	s := cluster(1, time.Now(), 1)
	seat := &s.Workers[0].Offer.Pools[0].Seats[0]
	seat.Item, seat.Progress = &item, `{"epoch":3}`
	m := &model{width: 160, height: 24}
	m.take(s)
	require.Contains(t, m.View(), `item 7 {"epoch":3}  embed-3fa92c01d4e5`)
}

func TestView_DevicesThatGetNoWork(t *testing.T) {
	s := cluster(5, time.Now(), 1)
	for i := range s.Workers {
		s.Workers[i].Offer.Pools[0].Cordoned = map[string]string{"GPU-5c89f0b2": "Xid 79; restart the host"}
	}
	m := &model{width: 120, height: 24}
	m.take(s)
	require.Contains(t, m.View(), red+"GPU-5c89f0b2 of pool gpu at node-00/4711 gets no work: Xid 79; restart the host"+noStyle)
	require.Contains(t, m.View(), "and 2 more devices get no work")
}
