package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
)

type Snapshot struct {
	At      time.Time
	Workers []fleet.Worker
	Maps    []starter.MapInfo // those that run
	// Err is why the rest is not whole: the snapshot before is shown with it.
	Err error
}

type TopOptions struct {
	Title  string        // the server
	Every  time.Duration // the pause between two looks
	Look   func() Snapshot
	Input  io.Reader
	Output io.Writer
}

// Top shows snapshots until the user leaves, or ctx ends.
func Top(ctx context.Context, o TopOptions) error {
	_, err := tea.NewProgram(newModel(o), tea.WithContext(ctx), tea.WithInput(o.Input), tea.WithOutput(o.Output),
		tea.WithFPS(10), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// model is bubbletea's: the state of the picture.
type model struct {
	TopOptions
	height int
	now    Snapshot
	counts map[string]count // of slots, by worker and name, and of maps
	// head and header stand above the slots, which scroll.
	head   []string
	header string
	slots  viewport.Model
}

// count is how many items had finished at a time, rate how many a second before it.
type count struct {
	at   time.Time
	done int64
	rate float64
}

func newModel(o TopOptions) *model {
	return &model{TopOptions: o, height: 24, counts: map[string]count{}, header: "asking the workers", slots: viewport.New(viewport.WithWidth(80), viewport.WithHeight(20))}
}

func (m *model) Init() tea.Cmd { return func() tea.Msg { return m.Look() } }

func (m *model) Update(msg tea.Msg) (_ tea.Model, next tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.slots.SetWidth(msg.Width)
		m.height = msg.Height
	case Snapshot:
		if m.now.Err = msg.Err; msg.Err == nil {
			m.now = msg
		}
		m.draw()
		next = tea.Tick(m.Every, func(time.Time) tea.Msg { return m.Look() })
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "home", "g":
			m.slots.GotoTop()
		case "end", "G":
			m.slots.GotoBottom()
		case "left":
			m.slots.SetXOffset(0)
		case "right":
			m.slots.ScrollRight(m.slots.Width() / 2)
		}
	}
	m.slots, _ = m.slots.Update(msg)
	m.slots.SetHeight(max(1, m.height-2-min(len(m.head), m.height/2)))
	m.slots.SetYOffset(m.slots.YOffset()) // there may be fewer slots, or more room
	return m, next
}

const bold, reverse, red, noStyle = "\x1b[1m", "\x1b[7m", "\x1b[31m", "\x1b[0m"

// draw makes the lines of a snapshot.
func (m *model) draw() {
	rate := func(key string, done int64) float64 {
		c, counted := m.counts[key]
		if passed := m.now.At.Sub(c.at).Seconds(); counted && passed > 0 {
			c.rate = max(0, float64(done-c.done)) / passed
		}
		m.counts[key] = count{m.now.At, done, c.rate}
		return c.rate
	}
	slots := [][]string{{"WORKER", "SLOT", "STATE", "MEMORY", "ITEMS/S", "RUNS", "FAULTS", "FOR", "ITEMS", "DEVICE", "PROGRESS"}}
	rows, busy, all := make([][]string, 1), 0, 0.0
	if m.now.Err != nil {
		rows = append(rows, []string{OneLine(m.now.Err.Error(), 300)})
	}
	for _, w := range m.now.Workers {
		if w.Offer == nil {
			rows = append(rows, []string{OneLine("no answer from "+w.Identity, 300)})
			continue
		}
		for _, p := range w.Offer.Pools {
			busy += p.Busy
			for _, d := range slices.Sorted(maps.Keys(p.Cordoned)) {
				rows = append(rows, []string{OneLine(fmt.Sprintf("%s of pool %s at %s gets no work: %s", d, p.Name, w.Identity, p.Cordoned[d]), 300)})
			}
			for _, slot := range p.Seats {
				each, item := rate(w.Identity+" "+slot.Name, slot.Items), ""
				all += each
				if slot.Item != nil {
					item = fmt.Sprintf("item %d ", *slot.Item)
				}
				slots = append(slots, []string{OneLine(w.Identity, 20), slot.Name, slot.State, strings.TrimSuffix(Known(slot.Held)+"/"+Known(p.Memory), "/-"),
					itemsPerSecond(each), cmp.Or(slot.Map, slot.Task), Count(slot.Faults), Span(time.Duration(slot.For)), Count(slot.Items),
					strings.TrimSpace(busyBar(p.Computing[slot.Device]) + " " + slot.Device),
					item + cmp.Or(Engines(gpumux.RunningItem{Progress: slot.Progress}), OneLine(slot.Progress, 60))})
			}
		}
	}
	rows[0] = []string{fmt.Sprintf("gpumux %s  %s, %d of %d slots busy, %s, %s", m.Title, english.Plural(len(m.now.Workers), "worker", ""), busy, len(slots)-1,
		PerSecond(all), english.Plural(len(m.now.Maps), "map", ""))}
	if more := len(rows) - 5; more > 0 {
		rows = append(rows[:5], []string{fmt.Sprintf("and %d more workers or devices; gpumux workers --json", more)})
	}
	alerts := len(rows)
	for _, each := range m.now.Maps {
		done, state := each.Succeeded+each.Failed, "no answer"
		progress := Count(done) + "/" + Count(each.Items)
		if done >= 0 && each.Items > 0 {
			progress += fmt.Sprintf(" %d%%", 100*done/each.Items)
		}
		if each.Paused {
			state = "paused"
		} else if done >= 0 {
			state = PerSecond(rate(each.ID, done))
		}
		rows = append(rows, []string{OneLine(each.ID, 60), progress, state, Count(each.Failed) + " failed"})
		for _, line := range StageLines(each.Stages) {
			rows = append(rows, []string{"  " + line})
		}
	}
	rows = append(rows, nil) // it parts the columns of maps and slots
	var text strings.Builder
	_ = Table(&text, append(rows, slots...)) // memory takes it
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	lines[0] = bold + lines[0] + noStyle
	for i := range alerts - 1 {
		lines[i+1] = red + lines[i+1] + noStyle
	}
	m.head, m.header = lines[:len(rows)], lines[len(rows)]
	m.slots.SetContent(strings.Join(lines[len(rows)+1:], "\n"))
}

// busyBar draws how busy a GPU was in the last minute, and says how busy it is.
func busyBar(percents []int) string {
	if len(percents) == 0 {
		return ""
	}
	var bar strings.Builder
	for _, percent := range percents {
		bar.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(7, max(0, percent)*8/100)])
	}
	return fmt.Sprintf("%s %d%%", &bar, percents[len(percents)-1])
}

func (m *model) View() tea.View { return tea.View{Content: m.picture(), AltScreen: true} }

func (m *model) picture() string {
	header := m.slots
	header.SetHeight(1)
	header.SetContent(m.header)
	lines := append(slices.Clone(m.head[:min(len(m.head), m.height/2)]), reverse+header.View()+noStyle, m.slots.View(),
		fmt.Sprintf("%.0f%%  q leaves; arrows, PgUp, PgDn, Home and End scroll", 100*m.slots.ScrollPercent()))
	return lipgloss.NewStyle().MaxWidth(m.slots.Width()).MaxHeight(m.height).Render(strings.Join(lines, "\n"))
}
