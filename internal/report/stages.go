package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
)

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
		line := fmt.Sprintf("%-10s", OneLine(s.Task, 24))
		say := func(show bool, format string, args ...any) {
			if show {
				line += "  " + fmt.Sprintf(format, args...)
			}
		}
		say(true, "%s finished", humanize.Comma(s.Succeeded+s.Failed))
		say(s.Failed > 0, "%s failed", humanize.Comma(s.Failed))
		say(s.Running > 0, "%s running", humanize.Comma(s.Running))
		say(s.Waiting > 0, "%s waiting", humanize.Comma(s.Waiting))
		say(s.Rate() > 0, "up to %s", PerSecond(s.Rate()))
		say(s.Busy > 0 && s.Running+s.Waiting == 0, "busy %s", Span(time.Duration(s.Busy)))
		say(s.GPU != nil, "GPU %s", s.GPU)
		lines = append(lines, line)
	}
	if advice := gpumux.Advice(stages); advice != "" {
		lines = append(lines, OneLine(advice, 300))
	}
	return lines
}
