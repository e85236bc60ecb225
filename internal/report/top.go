package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/mattn/go-runewidth"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

type Snapshot struct {
	At      time.Time
	Workers []fleet.Worker
	// Maps are those that run.
	Maps []starter.MapInfo
}

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
	if !m.busy {
		return m.rows
	}
	return slices.DeleteFunc(slices.Clone(m.rows), func(r slotRow) bool { return r.Map == "" })
}

// maxMaps and maxSick limit the lines about maps and about sick devices.
const maxMaps, maxSick = 5, 3

const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	red     = "\x1b[31m"
	noStyle = "\x1b[0m"
)

func (m *model) page() int {
	return max(1, m.height-len(m.head())-2)
}

func (m *model) View() string {
	lines := m.head()
	rows := m.shown()
	end := min(len(rows), m.first+m.page())
	lines = append(lines, reverse+m.line(cells{"WORKER", "SLOT", "DEVICE", "STATE", "MEMORY", "ITEMS/S", "ITEMS", "FAULTS", "RUNS"})+noStyle)
	for _, r := range rows[min(m.first, end):end] {
		lines = append(lines, m.slot(r))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	shown := "all slots"
	if m.busy {
		shown = "slots that work"
	}
	foot := fmt.Sprintf("%d-%d of %d, %s   q leaves, b busy ones, PgDn PgUp", min(m.first+1, end), end, len(rows), shown)
	return strings.Join(append(lines, m.fit(foot)), "\n")
}

func (m *model) head() []string {
	slots, busy, rate, silent := 0, 0, 0.0, []string{}
	for _, r := range m.rows {
		slots++
		rate += r.rate
		if r.Map != "" {
			busy++
		}
	}
	for _, w := range m.now.Workers {
		if w.Offer == nil {
			silent = append(silent, w.Identity)
		}
	}
	title := fmt.Sprintf("gpumux %s  %s, %d of %d slots busy, %s", m.o.Title, english.Plural(len(m.now.Workers), "worker", ""), busy, slots,
		PerSecond(rate))
	lines := []string{bold + m.fit(title) + noStyle}
	switch {
	case m.failed != nil:
		lines = append(lines, red+m.fit(OneLine(m.failed.Error(), 300))+noStyle)
	case m.now.At.IsZero():
		lines = append(lines, "asking the workers")
	case len(silent) > 0:
		lines = append(lines, red+m.fit("no answer from "+strings.Join(silent, ", "))+noStyle)
	}
	sick := m.sick()
	for _, text := range sick[:min(maxSick, len(sick))] {
		lines = append(lines, red+m.fit(text)+noStyle)
	}
	if more := len(sick) - maxSick; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more devices get no work; gpumux workers --json", more))
	}
	shown := m.now.Maps[:min(maxMaps, len(m.now.Maps))]
	room := m.height/2 - len(lines) - len(shown) // the slots have the other half
	for _, each := range shown {
		lines = append(lines, m.fit(m.mapLine(each)))
		if stages := StageLines(each.Stages); len(stages) <= room {
			room -= len(stages)
			for _, line := range stages {
				lines = append(lines, m.fit("  "+line))
			}
		}
	}
	if more := len(m.now.Maps) - maxMaps; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more maps; gpumux ls --running", more))
	}
	return append(lines, "")
}

func (m *model) sick() (lines []string) {
	for _, w := range m.now.Workers {
		if w.Offer == nil {
			continue
		}
		for _, p := range w.Offer.Pools {
			for _, d := range slices.Sorted(maps.Keys(p.Cordoned)) {
				lines = append(lines, fmt.Sprintf("%s of pool %s at %s gets no work: %s", d, p.Name, w.Identity, OneLine(p.Cordoned[d], 300)))
			}
		}
	}
	return lines
}

func (m *model) mapLine(each starter.MapInfo) string {
	if each.Succeeded < 0 {
		return each.ID + "  no answer"
	}
	done := each.Succeeded + each.Failed
	line := fmt.Sprintf("%s  %s/%s", each.ID, humanize.Comma(done), Count(each.Items))
	if each.Items > 0 {
		line += fmt.Sprintf(" %d%%", 100*done/each.Items)
	}
	if each.Paused {
		line += "  paused"
	} else if rate := m.rates[each.ID]; rate > 0 {
		line += "  " + PerSecond(rate)
	}
	if each.Failed > 0 {
		line += fmt.Sprintf("  %s failed", humanize.Comma(each.Failed))
	}
	return line
}

const wideTerminal = 110

// cells are the columns of a line; the last takes the rest of the width.
type cells struct{ worker, slot, device, state, memory, rate, items, faults, runs string }

func (m *model) line(c cells) string {
	if m.width < wideTerminal {
		return m.fit(fmt.Sprintf("%s %-7s %-8s %14s %7s %6s  %s", cut(c.worker, 14), c.slot, c.state, c.memory, c.rate, c.faults, c.runs))
	}
	return m.fit(fmt.Sprintf("%s %-7s %s %-10s %14s %9s %12s %6s  %s", cut(c.worker, 20), c.slot, cut(c.device, 13), c.state, c.memory, c.rate, c.items,
		c.faults, c.runs))
}

func (m *model) slot(r slotRow) string {
	c := cells{worker: r.host, slot: r.Name, device: r.Device, state: r.State, memory: memoryText(r.Held, r.budget), rate: "-",
		items: humanize.Comma(r.Items), faults: humanize.Comma(r.Faults), runs: runs(r)}
	if r.rate > 0 {
		c.rate = strings.TrimSuffix(PerSecond(r.rate), "/s")
	}
	return m.line(c)
}

// runs returns a slot's map, else its task; the progress of its item stands before it.
func runs(r slotRow) string {
	what := cmp.Or(r.Map, r.Task)
	if r.State == "starting" && r.For > 0 {
		return fmt.Sprintf("%s has been importing for %s  %s", r.Task, time.Duration(r.For).Round(time.Second), r.Map)
	}
	if r.Progress == "" {
		return what
	}
	item := ""
	if r.Item != nil {
		item = fmt.Sprintf("item %d ", *r.Item)
	}
	return fmt.Sprintf("%s%s  %s", item, cmp.Or(Engines(gpumux.RunningItem{Progress: r.Progress}), OneLine(r.Progress, 60)), what)
}

func memoryText(held, budget gpumux.Size) string {
	text := "-"
	if held > 0 {
		text = held.String()
	}
	if budget > 0 {
		text += "/" + budget.String()
	}
	return text
}

func cut(text string, width int) string {
	return runewidth.FillRight(runewidth.Truncate(text, width, "…"), width)
}

// fit cuts a line to the terminal, with ? for control characters.
func (m *model) fit(line string) string {
	return runewidth.Truncate(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, line), m.width, "…")
}
