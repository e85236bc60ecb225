package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func Maps(to io.Writer, maps []starter.MapInfo, now time.Time) error {
	rows := [][]string{{"ID", "STATUS", "ITEMS", "DONE", "FAILED", "STARTED", "TOOK"}}
	for _, m := range maps {
		done, failed := "-", "-"
		if m.Succeeded >= 0 {
			done, failed = humanize.Comma(m.Succeeded+m.Failed), humanize.Comma(m.Failed)
		}
		end := m.Closed
		if end.IsZero() {
			end = now
		}
		status := string(m.Status)
		if m.Paused {
			status = "paused"
		}
		rows = append(rows, []string{m.ID, status, Count(m.Items), done, failed, Ago(now, m.Started), Span(max(0, end.Sub(m.Started)))})
	}
	return Table(to, rows)
}

func Workers(to io.Writer, all []fleet.Worker, now time.Time) error {
	rows := [][]string{{"WORKER", "POOL", "SLOTS", "MEMORY", "DEVICES", "VERSION", "SEEN", "TASKS"}}
	for _, w := range all {
		if w.Offer == nil {
			rows = append(rows, []string{w.Identity, "-", "-", "-", "-", "-", Ago(now, w.Seen), "-"})
			continue
		}
		for _, p := range w.Offer.Pools {
			rows = append(rows, []string{w.Identity, p.Name, fmt.Sprintf("%d/%d", p.Busy, p.Slots), Known(p.Memory), strings.Join(p.Devices, ","),
				w.Offer.Version, Ago(now, w.Seen), shorten(strings.Join(w.Offer.Tasks, ", "), 60)})
		}
	}
	return Table(to, rows)
}

// Pools describes pools in a line: "gpu (2 slots of 8GiB on GPU-5c89)".
func Pools(pools []contract.PoolInfo) string {
	var lines []string
	for _, p := range pools {
		slots := english.Plural(p.Slots, "slot", "") + text.When(p.MaxSlots > 0, ", at most %d by measurement,", p.MaxSlots) +
			text.When(p.Memory > 0, " of %s", p.Memory)
		lines = append(lines, fmt.Sprintf("%s (%s on %s)", p.Name, slots, strings.Join(p.Devices, ", ")))
	}
	return strings.Join(lines, ", ")
}

// stagesTable writes a row per stage of a map that has some, and gpumux.Advice.
func stagesTable(to io.Writer, stages []gpumux.StageProgress) {
	if len(stages) == 0 {
		return
	}
	rows := [][]string{{"TASK", "POOLS", "FINISHED", "FAILED", "RUNNING", "WAITING", "SLOTS", "ITEMS/S"}}
	for _, s := range stages {
		rows = append(rows, []string{OneLine(s.Task, 60), strings.Join(s.Ladder, ","), humanize.Comma(s.Succeeded + s.Failed), humanize.Comma(s.Failed),
			humanize.Comma(s.Running), humanize.Comma(s.Waiting), Count(cmp.Or(int64(s.Slots), -1)), itemsPerSecond(s.Rate())})
	}
	fmt.Fprintln(to)
	_ = Table(to, rows) // the lines around it fail alike
	if advice := gpumux.Advice(stages); advice != "" {
		fmt.Fprintln(to, OneLine(advice, 300))
	}
}

// StageLines are a line per stage of a map and gpumux.Advice.
func StageLines(stages []gpumux.StageProgress) (lines []string) {
	for _, s := range stages {
		lines = append(lines, fmt.Sprintf("%-10s  %s finished", OneLine(s.Task, 24), humanize.Comma(s.Succeeded+s.Failed))+
			text.When(s.Failed > 0, "  %s failed", humanize.Comma(s.Failed))+
			text.When(s.Running > 0, "  %s running", humanize.Comma(s.Running))+
			text.When(s.Waiting > 0, "  %s waiting", humanize.Comma(s.Waiting))+
			text.When(s.Rate() > 0, "  up to %s", PerSecond(s.Rate()))+
			text.When(s.Busy > 0 && s.Running+s.Waiting == 0, "  busy %s", Span(time.Duration(s.Busy)))+
			text.When(s.GPU != nil, "  GPU %s", s.GPU))
	}
	if advice := gpumux.Advice(stages); advice != "" {
		lines = append(lines, OneLine(advice, 300))
	}
	return lines
}
