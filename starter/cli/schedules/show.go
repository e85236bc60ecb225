package schedules

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// List writes a row per schedule.
func List(to io.Writer, all []starter.Scheduled) error {
	rows := [][]string{{"NAME", "TASK", "WHEN", "NEXT", "LAST MAP", "INPUT"}}
	for _, s := range all {
		last := "-"
		if len(s.Maps) > 0 {
			last = s.Maps[len(s.Maps)-1]
		}
		rows = append(rows, []string{s.Name, cmp.Or(s.Task, "-"), when(s.Times), next(s), last, screen.OneLine(cmp.Or(s.Input, "-"), 40)})
	}
	return screen.Table(to, rows)
}

// Show writes what there is to know of one.
func Show(to io.Writer, s starter.Scheduled, in gpumux.MapInput) {
	screen.Field(to, "schedule", "%s", s.Name)
	screen.Field(to, "task", "%s", in.Task)
	screen.Field(to, "pools", "%s", strings.Join(in.Rungs(), ", then "))
	screen.Field(to, "items", "%s of %s", screen.Count(s.Items), cmp.Or(s.Input, "-"))
	screen.Field(to, "when", "%s", when(s.Times))
	screen.Field(to, "next", "%s", next(s))
	for _, id := range s.Maps {
		screen.Field(to, "map", "%s", id)
	}
}

func when(at starter.Times) string {
	return cmp.Or(strings.Join(at.Cron, ", "), "-") + " " + cmp.Or(at.Zone, "UTC")
}

func next(s starter.Scheduled) string {
	switch {
	case s.Paused:
		return "paused"
	case len(s.Next) == 0:
		return "never"
	}
	return s.Next[0].Local().Format(time.DateTime)
}
