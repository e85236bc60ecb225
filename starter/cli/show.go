package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show how a map stands, or which leases a workflow has",
		Example: "  gpumux show embed-3fa92c01d4e5",
		Args:    oneID,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return a.onServer(c, func(ctx context.Context, conn *connection, args []string) error {
		d, err := conn.Show(ctx, args[0])
		if errors.As(err, new(*starter.NotMap)) {
			return a.showLeases(ctx, conn, args[0], asJSON)
		}
		if err != nil {
			return err
		}
		var causes []starter.Cause
		if d.Summary != nil {
			causes = a.causes(ctx, conn, *d.Summary)
		}
		if asJSON {
			return printJSON(a.Stdout, struct {
				*starter.Detail
				Causes []starter.Cause `json:"causes,omitempty"`
			}{d, causes})
		}
		printDetail(a.Stdout, d, causes, conn.link(d.ID), time.Now())
		return nil
	})
}

// showLeases shows a workflow of somebody's own.
func (a *app) showLeases(ctx context.Context, conn *connection, id string, asJSON bool) error {
	l, err := conn.Leases(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.Stdout, l)
	}
	to := screen.Visible(a.Stdout)
	screen.Field(to, "workflow", "%s", l.ID)
	screen.Field(to, "type", "%s", l.Type)
	screen.Field(to, "status", "%s", string(l.Status))
	screen.Field(to, "started", "%s (%s)", l.Started.Local().Format(time.DateTime), screen.Ago(time.Now(), l.Started))
	screen.Field(to, "web UI", "%s", conn.link(l.ID))
	if len(l.Leases) == 0 {
		fmt.Fprint(to, "\nno lease\n")
		return nil
	}
	fmt.Fprint(to, "\nleases\n")
	for _, each := range l.Leases {
		fmt.Fprintf(to, "  %s\n", leaseLine(each, time.Now()))
	}
	return nil
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

// pendingShown is how many chunks in flight are shown to people.
const pendingShown = 10

// printDetail writes all about a map for people.
func printDetail(to io.Writer, d *starter.Detail, causes []starter.Cause, page string, now time.Time) {
	to = screen.Visible(to)
	say := func(name, text string) {
		if text != "" {
			screen.Field(to, name, "%s", text)
		}
	}
	var faults map[gpumux.Kind]int64
	var peak *gpumux.Peaks
	status, reduces := string(d.Status), ""
	if p := d.Progress; p != nil {
		faults, peak = p.Faults, p.Peak
		if p.Paused {
			status = "paused"
		} else if p.Phase != gpumux.Running {
			status += ", " + string(p.Phase)
		}
	} else if d.Summary != nil {
		faults, peak, reduces = d.Summary.Faults, d.Summary.Peak, reduced(*d.Summary)
	}
	items := screen.Count(d.Items)
	if d.Input != "" {
		items += " from " + d.Input
	}
	screen.Field(to, "map", "%s", d.ID)
	screen.Field(to, "task", "%s", d.Task)
	screen.Field(to, "status", "%s", status)
	say("items", items)
	if d.Succeeded >= 0 {
		failed := humanize.Comma(d.Failed)
		if len(faults) > 0 {
			failed += " (" + kinds(faults) + ")"
		}
		say("succeeded", humanize.Comma(d.Succeeded))
		say("failed", failed)
	}
	screen.Field(to, "started", "%s (%s)", d.Started.Local().Format(time.DateTime), screen.Ago(now, d.Started))
	if !d.Closed.IsZero() {
		say("took", screen.Span(d.Closed.Sub(d.Started)))
	}
	say("in flight", inFlight(d.Progress))
	if peak != nil {
		screen.Field(to, "memory", "peak per item: %s", peak)
	}
	say("reduced", reduces)
	say("results", d.Output)
	say("web UI", page)
	printServing(to, d)
	printFaults(to, d, causes)
	printPending(to, d, now)
	if d.Fault != nil {
		fmt.Fprintf(to, "\nfailed: %s\n%s", d.Fault.Error(), faultText(*d.Fault))
	}
}

// inFlight says what a running map has in its workers' hands; p may be nil.
func inFlight(p *gpumux.Progress) string {
	if p == nil {
		return ""
	}
	of, rate := "", ""
	if p.Chunk > 0 {
		of = fmt.Sprintf(" of up to %d items", p.Chunk)
	}
	if p.Rate > 0 {
		rate = ", " + screen.PerSecond(p.Rate)
	}
	return fmt.Sprintf("%d chunks%s, window %d%s", p.InFlight, of, p.Window, rate)
}

// printServing says what a running map waits for.
func printServing(to io.Writer, d *starter.Detail) {
	if d.Progress != nil {
		for _, pool := range d.Progress.PassedOver {
			fmt.Fprintf(to, "\n%s is passed over, since no worker has a healthy device for it; the next pool has its work until one has\n", pool)
		}
	}
	for _, rung := range d.Rungs {
		if !rung.Served() {
			fmt.Fprintf(to, "\nno worker serves %s (queue %s); start one with `gpumux worker -f gpumux.yaml`\n", rung.Name, rung.Queue)
		}
	}
}

// printFaults writes why items failed: of a map that runs the newest failures, of one that has completed all of them.
func printFaults(to io.Writer, d *starter.Detail, causes []starter.Cause) {
	failed := d.Failed
	if d.Progress != nil {
		var recent starter.Causes
		for _, result := range d.Progress.Recent {
			recent.Add(result)
		}
		causes, failed = recent.Most(), 0
	}
	if len(causes) > 0 {
		fmt.Fprint(to, "\nfailed items\n")
		printCauses(to, "  ", failed, causes)
	}
}

func printPending(to io.Writer, d *starter.Detail, now time.Time) {
	if len(d.Pending) == 0 {
		return
	}
	fmt.Fprint(to, "\nin flight\n")
	for _, p := range d.Pending[:min(len(d.Pending), pendingShown)] {
		line := fmt.Sprintf("  %s %s: %s, attempt %d", strings.TrimPrefix(p.Activity, "gpumux."), p.ID, p.State, max(1, p.Attempt))
		if p.Worker != "" {
			line += " at " + p.Worker
		}
		if wait := p.Next.Sub(now); wait > 0 {
			line += ", next try in " + screen.Span(wait)
		}
		fmt.Fprintln(to, line)
		if p.Waiting != "" {
			fmt.Fprintf(to, "    %s\n", screen.OneLine(p.Waiting, 200))
		}
		if p.Fault != nil {
			fmt.Fprintf(to, "    last: %s\n", screen.OneLine(p.Fault.Error(), 200))
		}
	}
	if more := len(d.Pending) - pendingShown; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
	}
}
