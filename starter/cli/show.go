package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show how a map stands: progress, faults, chunks in flight",
		Example: "  gpumux show embed-3fa92c01d4e5",
		Args:    oneID,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	a.connectionFlags(c)
	c.RunE = ran(func(c *cobra.Command, args []string) error {
		conn, err := a.connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		d, err := conn.Show(c.Context(), args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(a.Stdout, d)
		}
		printDetail(a.Stdout, d, conn.link(d.ID), time.Now())
		return nil
	})
	return c
}

// pendingShown is how many chunks in flight are shown to people.
const pendingShown = 10

// printDetail writes all about a map for people.
func printDetail(to io.Writer, d *starter.Detail, page string, now time.Time) {
	to = newVisible(to)
	field(to, "map", "%s", d.ID)
	field(to, "task", "%s", d.Task)
	status := string(d.Status)
	if d.Progress != nil && d.Progress.Paused {
		status = "paused"
	} else if d.Progress != nil && d.Progress.Phase != gpumux.Running {
		status += ", " + string(d.Progress.Phase)
	}
	field(to, "status", "%s", status)
	items := count(d.Items)
	if d.Input != "" {
		items += " from " + d.Input
	}
	field(to, "items", "%s", items)
	if d.Succeeded >= 0 {
		field(to, "succeeded", "%s", humanize.Comma(d.Succeeded))
		var faults map[gpumux.Kind]int64
		if d.Progress != nil {
			faults = d.Progress.Faults
		} else if d.Summary != nil {
			faults = d.Summary.Faults
		}
		failed := humanize.Comma(d.Failed)
		if len(faults) > 0 {
			failed += " (" + kinds(faults) + ")"
		}
		field(to, "failed", "%s", failed)
	}
	field(to, "started", "%s (%s)", d.Started.Local().Format(time.DateTime), ago(now, d.Started))
	if !d.Closed.IsZero() {
		field(to, "took", "%s", span(d.Closed.Sub(d.Started)))
	}
	if p := d.Progress; p != nil {
		text := fmt.Sprintf("%d chunks, window %d", p.InFlight, p.Window)
		if p.Chunk > 0 {
			text = fmt.Sprintf("%d chunks of up to %d items, window %d", p.InFlight, p.Chunk, p.Window)
		}
		if p.Rate > 0 {
			text += ", " + perSecond(p.Rate)
		}
		field(to, "in flight", "%s", text)
	}
	var peak *gpumux.Peaks
	if d.Progress != nil {
		peak = d.Progress.Peak
	} else if d.Summary != nil {
		peak = d.Summary.Peak
	}
	if peak != nil {
		field(to, "memory", "peak per item: %s", peak)
	}
	if d.Summary != nil {
		if text := reduced(*d.Summary); text != "" {
			field(to, "reduced", "%s", text)
		}
	}
	if d.Output != "" {
		field(to, "results", "%s", d.Output)
	}
	if page != "" {
		field(to, "web UI", "%s", page)
	}
	printServing(to, d)
	printFaults(to, d)
	printPending(to, d, now)
	if d.Fault != nil {
		fmt.Fprintf(to, "\nfailed: %s\n%s", d.Fault.Error(), faultText(*d.Fault))
	}
}

// printServing says what a running map waits for.
func printServing(to io.Writer, d *starter.Detail) {
	for _, rung := range d.Rungs {
		if !rung.Served() {
			fmt.Fprintf(to, "\nno worker serves %s (queue %s); start one with `gpumux worker -f gpumux.yaml`\n", rung.Name, rung.Queue)
		}
	}
}

func printFaults(to io.Writer, d *starter.Detail) {
	var recent []gpumux.Result
	if d.Progress != nil {
		recent = d.Progress.Recent
	} else if d.Summary != nil {
		for _, result := range d.Summary.Results {
			if result.Fault != nil && len(recent) < faultsShown {
				recent = append(recent, result)
			}
		}
	}
	for i, result := range recent {
		if result.Fault == nil {
			continue
		}
		if i == 0 {
			fmt.Fprint(to, "\nfailed items\n")
		}
		fmt.Fprintf(to, "  item %d: %s\n", result.Index, oneLine(result.Fault.Error(), 200))
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
			line += ", next try in " + span(wait)
		}
		fmt.Fprintln(to, line)
		if p.Waiting != "" {
			fmt.Fprintf(to, "    %s\n", oneLine(p.Waiting, 200))
		}
		if p.Fault != nil {
			fmt.Fprintf(to, "    last: %s\n", oneLine(p.Fault.Error(), 200))
		}
	}
	if more := len(d.Pending) - pendingShown; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
	}
}
