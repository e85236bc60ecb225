package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
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
		p := contract.PoolInfo{Name: "gpu", Slots: 8, Busy: 6, Memory: 8 << 30,
			Computing: map[string][]int{"GPU-5c89f0b2": {0, 12, 13, 30, 45, 60, 70, 80, 95, 100, 100, 83}}}
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

// topOf is a terminal of that size on which snapshots were shown.
func topOf(width, height int, shown ...Snapshot) *model {
	m := newModel(TopOptions{Title: "127.0.0.1:7233", Every: time.Second})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for _, s := range shown {
		m.Update(s)
	}
	return m
}

// shownTop is the picture after two snapshots, ten seconds apart, and keys.
func shownTop(workers, width, height int, keys ...rune) string {
	at := time.Unix(1_700_000_000, 0)
	m := topOf(width, height, cluster(workers, at, 100), cluster(workers, at.Add(10*time.Second), 600))
	for _, key := range keys {
		m.Update(tea.KeyPressMsg{Code: key})
	}
	return m.picture()
}

func TestView_FitsTheTerminal(t *testing.T) {
	for name, keys := range map[string][]rune{"place": nil, "end": {tea.KeyEnd, tea.KeyRight}} {
		got := shownTop(100, 80, 24, keys...)
		lines := strings.Split(got, "\n")
		require.Len(t, lines, 24)
		for _, line := range lines {
			require.LessOrEqual(t, ansi.StringWidth(line), 80, line)
		}
		golden(t, "top_"+name, got)
	}
	golden(t, "top_wide", shownTop(2, 120, 30))
}

func TestModel_Keys(t *testing.T) {
	require.Contains(t, shownTop(100, 80, 24, tea.KeyEnd), "node-99/4711  gpu/7")
	place := shownTop(100, 80, 24)
	require.NotContains(t, place, "GPU-5c89f0b2")
	require.Contains(t, shownTop(100, 80, 24, tea.KeyRight), "GPU-5c89f0b2")
	for _, keys := range [][]rune{{tea.KeyPgUp, tea.KeyUp, tea.KeyPgDown, tea.KeyHome}, {tea.KeyRight, tea.KeyLeft, tea.KeyLeft}} {
		require.Equal(t, place, shownTop(100, 80, 24, keys...))
	}
	wide := shownTop(2, 200, 24)
	require.Equal(t, wide, shownTop(2, 200, 24, tea.KeyLeft, tea.KeyRight), "all columns have room")
	require.NotPanics(t, func() { shownTop(3, 20, 3, tea.KeyEnd, tea.KeyRight) })
	for _, key := range []tea.KeyPressMsg{{Code: tea.KeyEsc}, {Code: 'c', Mod: tea.ModCtrl}, {Code: 'q', Text: "q"}} {
		_, next := topOf(80, 24).Update(key)
		require.Equal(t, tea.Quit(), next(), key)
	}
}

// A row that goes leaves no place below the others.
func TestModel_FewerSlots(t *testing.T) {
	m := topOf(80, 24, cluster(100, time.Now(), 1))
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnd})
	m.Update(cluster(3, time.Now(), 1))
	require.Contains(t, m.picture(), "node-02/4711  gpu/7")
	require.Equal(t, 18, strings.Count(m.picture(), "/4711"))
}

func TestModel_ErrorsStandAboveTheLastPicture(t *testing.T) {
	require.Contains(t, topOf(80, 24).picture(), "asking the workers")
	at := time.Unix(1_700_000_000, 0)
	m := topOf(80, 24, cluster(1, at, 100), cluster(1, at.Add(10*time.Second), 600))
	_, next := m.Update(Snapshot{At: at.Add(12 * time.Second), Err: errors.New("no answer from the server")})
	require.NotNil(t, next, "it asks again")
	require.Contains(t, m.picture(), red+"no answer from the server"+noStyle)
	require.Contains(t, m.picture(), "gpu/7")
	require.Contains(t, m.picture(), "6 of 8 slots busy, 1,800/s, 2 maps")
	silent := cluster(1, time.Now(), 1)
	silent.Workers[0].Offer = nil
	silent.Workers[0].Identity += "\x1b[2J\n"
	m.Update(silent)
	require.NotContains(t, m.picture(), "no answer from the server")
	require.Contains(t, m.picture(), red+`no answer from node-00/4711\u001b[2J`+noStyle)
}

// Stages stand below their map. Half of the picture is the slots'.
func TestView_Stages(t *testing.T) {
	s := cluster(1, time.Now(), 1)
	s.Maps[1].Stages = staged()
	for height, want := range map[int]bool{24: true, 14: true, 10: false} {
		m := topOf(120, height, s)
		lines := strings.Split(m.picture(), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		require.Equal(t, want, strings.Contains(strings.Join(lines, "\n"), "\n  "+strings.Join(StageLines(staged()), "\n  ")+"\n"), "%d", height)
		require.Len(t, lines, height)
		header := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "WORKER") })
		require.LessOrEqual(t, header, height/2)
	}
}

// What an item reports of itself is the last column. A start that takes long is no
// mystery.
func TestView_Progress(t *testing.T) {
	item := int64(7)
	s := cluster(1, time.Now(), 1)
	seats := s.Workers[0].Offer.Pools[0].Seats
	seats[0].Item, seats[0].Progress = &item, `{"epoch":3}`
	seats[1].State, seats[1].For = "starting", gpumux.Duration(3*time.Minute)
	seats[2].Item, seats[2].Progress, seats[2].Device = &item, engineTwo, "\x1b[2J"
	view := topOf(200, 24, s).picture()
	require.Contains(t, view, "item 7 40 tokens/s in, 12 out, 4 running")
	require.Contains(t, view, `  \u001b[2J  `)
	require.Regexp(t, `gpu/0 .* embed-3fa92c01d4e5 .* item 7 \{"epoch":3\}`, view)
	require.Regexp(t, `gpu/1 +starting .* embed-3fa92c01d4e5 .* 3m00s `, view)
}

func TestView_DevicesThatGetNoWork(t *testing.T) {
	s := cluster(6, time.Now(), 1)
	for i := range s.Workers {
		s.Workers[i].Offer.Pools[0].Cordoned = map[string]string{"GPU-5c89f0b2": "Xid 79; restart the host"}
	}
	view := topOf(120, 24, s).picture()
	require.Contains(t, view, red+"GPU-5c89f0b2 of pool gpu at node-00/4711 gets no work: Xid 79; restart the host"+noStyle)
	require.Contains(t, view, "and 2 more workers or devices; gpumux workers --json")
}
