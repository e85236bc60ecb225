package report

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

// Snapshot has what Run shows.
type Snapshot struct {
	At      time.Time
	Workers []fleet.Worker
	// Maps are those that run.
	Maps []starter.MapInfo
}

// TopOptions say what Run shows.
type TopOptions struct {
	// Title names the server. Every is the pause between two snapshots.
	Title string
	Every time.Duration
	// Look takes a snapshot. An error is shown, with the snapshot before.
	Look func(ctx context.Context) (Snapshot, error)
	// Input and Output are the terminal.
	Input  io.Reader
	Output io.Writer
}

// Top shows snapshots until the user leaves, or ctx ends.
func Top(ctx context.Context, o TopOptions) error {
	m := &model{o: o, ctx: ctx, width: 80, height: 24}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.Input), tea.WithOutput(o.Output), tea.WithAltScreen(),
		tea.WithFPS(10), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

type slotRow struct {
	contract.SlotInfo
	host   string
	budget gpumux.Size
	// rate is in items a second, since the snapshot before.
	rate float64
}

type order int

const (
	byPlace order = iota
	byMemory
	byRate
	byFaults
	orders
)

// model is bubbletea's: the state of the picture.
type model struct {
	o             TopOptions
	ctx           context.Context
	width, height int

	now    Snapshot
	failed error
	rows   []slotRow
	rates  map[string]float64 // of maps, in items a second
	// first is the first row that is shown; busy leaves out slots that do nothing.
	first int
	order order
	busy  bool
}

type looked struct {
	Snapshot
	err error
}

type tick struct{}

func (m *model) Init() tea.Cmd { return m.look }

func (m *model) look() tea.Msg {
	s, err := m.o.Look(m.ctx)
	return looked{s, err}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case looked:
		if m.failed = msg.err; msg.err == nil {
			m.take(msg.Snapshot)
		}
		return m, tea.Tick(m.o.Every, func(time.Time) tea.Msg { return tick{} })
	case tick:
		return m, m.look
	case tea.KeyMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *model) key(key string) tea.Cmd {
	page := m.page()
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "down", "j":
		m.first++
	case "up", "k":
		m.first--
	case "pgdown", " ":
		m.first += page
	case "pgup":
		m.first -= page
	case "home", "g":
		m.first = 0
	case "end", "G":
		m.first = len(m.shown())
	case "s":
		m.order = (m.order + 1) % orders
	case "b":
		m.busy = !m.busy
	}
	m.first = max(0, min(m.first, len(m.shown())-page))
	return nil
}

// take makes rows of a snapshot, with rates since the one before.
func (m *model) take(s Snapshot) {
	passed := s.At.Sub(m.now.At).Seconds()
	rate := func(now, before int64, known bool) float64 {
		if !known || passed <= 0 {
			return 0
		}
		return max(0, float64(now-before)) / passed
	}
	items, done := map[string]int64{}, map[string]int64{}
	for _, r := range m.rows {
		items[r.host+" "+r.Name] = r.Items
	}
	for _, each := range m.now.Maps {
		done[each.ID] = each.Succeeded + each.Failed
	}
	m.now, m.rows, m.rates = s, nil, map[string]float64{}
	for _, each := range s.Maps {
		before, known := done[each.ID]
		m.rates[each.ID] = rate(each.Succeeded+each.Failed, before, known)
	}
	for _, w := range s.Workers {
		if w.Offer == nil {
			continue
		}
		for _, p := range w.Offer.Pools {
			for _, seat := range p.Seats {
				before, known := items[w.Identity+" "+seat.Name]
				m.rows = append(m.rows, slotRow{seat, w.Identity, p.Memory, rate(seat.Items, before, known)})
			}
		}
	}
}

func (m *model) shown() []slotRow {
	rows := m.rows
	if m.busy {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r slotRow) bool { return r.Map == "" })
	}
	if m.order == byPlace {
		return rows
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b slotRow) int {
		switch m.order {
		case byMemory:
			return cmp.Compare(b.Held, a.Held)
		case byRate:
			return cmp.Compare(b.rate, a.rate)
		}
		return cmp.Compare(b.Faults, a.Faults)
	})
	return rows
}
