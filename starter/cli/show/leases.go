package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// Leases writes the leases of a workflow for people.
func Leases(to io.Writer, l *starter.Leasing, page string, now time.Time) {
	to = screen.Visible(to)
	screen.Field(to, "workflow", "%s", l.ID)
	screen.Field(to, "type", "%s", l.Type)
	screen.Field(to, "status", "%s", string(l.Status))
	screen.Field(to, "started", "%s (%s)", l.Started.Local().Format(time.DateTime), screen.Ago(now, l.Started))
	screen.Field(to, "web UI", "%s", page)
	if len(l.Leases) == 0 {
		fmt.Fprint(to, "\nno lease\n")
		return
	}
	fmt.Fprint(to, "\nleases\n")
	for _, each := range l.Leases {
		fmt.Fprintf(to, "  %s\n", leaseLine(each, now))
	}
}

func leaseLine(l starter.Lease, now time.Time) string {
	switch {
	case l.Worker == "":
		return "waits for a slot"
	case l.Slot == "":
		return "a slot at " + l.Worker
	}
	parts := []string{fmt.Sprintf("%s on %s at %s", l.Slot, l.Device, l.Worker), fmt.Sprintf("%d calls", l.Calls)}
	if l.Task != "" {
		parts = append(parts, "runs "+l.Task)
	}
	if l.Residents > 0 {
		parts = append(parts, fmt.Sprintf("residents: %d of %s", l.Residents, gpumux.Size(l.ResidentBytes)))
	}
	return strings.Join(append(parts, "ends within "+screen.Span(l.Until.Sub(now))), ", ")
}
