package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

const pendingShown = 10

// Detail writes all about a map for people.
func Detail(to io.Writer, d *starter.Detail, causes []starter.Cause, page string, now time.Time) {
	to = Visible(to)
	say := func(name, text string) {
		if text != "" {
			Field(to, name, "%s", text)
		}
	}
	var faults map[gpumux.FaultKind]int64
	var peak *gpumux.Peaks
	status, reduces := string(d.Status), ""
	if p := d.Progress; p != nil {
		faults, peak = p.Faults, p.Peak
		if p.Paused {
			status = "paused"
		} else if p.Phase != gpumux.PhaseRunning {
			status += ", " + string(p.Phase)
		}
	} else if d.Summary != nil {
		faults, peak, reduces = d.Summary.Faults, d.Summary.Peak, Reduced(*d.Summary)
	}
	items := Count(d.Items)
	if d.Input != "" {
		items += " from " + d.Input
	}
	Field(to, "map", "%s", d.ID)
	Field(to, "task", "%s", d.Task)
	Field(to, "status", "%s", status)
	say("items", items)
	if d.Succeeded >= 0 {
		failed := humanize.Comma(d.Failed)
		if len(faults) > 0 {
			failed += " (" + Kinds(faults) + ")"
		}
		say("succeeded", humanize.Comma(d.Succeeded))
		say("failed", failed)
	}
	Field(to, "started", "%s (%s)", d.Started.Local().Format(time.DateTime), Ago(now, d.Started))
	if !d.Closed.IsZero() {
		say("took", Span(d.Closed.Sub(d.Started)))
	}
	if d.Progress != nil {
		say("waits for", d.Progress.WaitingFor)
	}
	say("in flight", inFlight(d.Progress))
	if peak != nil {
		Field(to, "memory", "peak per item: %s", peak)
	}
	say("reduced", reduces)
	say("results", d.Output)
	say("web UI", page)
	printServing(to, d)
	printLines(to, "waits: no worker has a healthy device", d.Sick)
	printLines(to, "notices", d.Notices)
	printFaults(to, d, causes)
	printRunning(to, d)
	printPending(to, d, now)
	if d.Fault != nil {
		fmt.Fprintf(to, "\nfailed: %s\n%s", d.Fault.Error(), FaultText(*d.Fault))
	}
}

// inFlight describes the chunks that workers have of a running map; p may be nil.
func inFlight(p *gpumux.Progress) string {
	if p == nil {
		return ""
	}
	of, rate := "", ""
	if p.Chunk > 0 {
		of = fmt.Sprintf(" of up to %d items", p.Chunk)
	}
	if p.Rate > 0 {
		rate = ", " + PerSecond(p.Rate)
	}
	if p.Waiting > 0 {
		rate += fmt.Sprintf("; %s items wait to be tried again", humanize.Comma(p.Waiting))
	}
	return fmt.Sprintf("%s%s, window %d%s", english.Plural(p.InFlight, "chunk", ""), of, p.Window, rate)
}

func printServing(to io.Writer, d *starter.Detail) {
	if d.Progress != nil {
		for _, pool := range d.Progress.PassedOver {
			fmt.Fprintf(to, "\n%s is passed over, since no worker has a healthy device for it; the next pool has its work until one has\n", pool)
		}
	}
	if d.Queue != "" && len(d.Rungs) > 0 {
		fmt.Fprintf(to, "\nno worker begins it on the task queue %s; end it, and start it on %s\n", d.Queue, gpumux.Queue)
		return
	}
	for _, rung := range d.Rungs {
		if !rung.Served() {
			fmt.Fprintf(to, "\nno worker serves %s (queue %s); start one with `gpumux worker -f gpumux.yaml`\n", rung.Name, rung.Queue)
		}
	}
}

func printLines(to io.Writer, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(to, "\n%s\n", title)
	}
	for _, line := range lines {
		fmt.Fprintf(to, "  %s\n", OneLine(line, 400))
	}
}

// printFaults writes why items failed: by causes, else by the newest failures of a map
// that runs.
func printFaults(to io.Writer, d *starter.Detail, causes []starter.Cause) {
	failed := d.Failed
	if d.Progress != nil {
		failed = 0 // it goes on
	}
	if len(causes) == 0 && d.Progress != nil {
		var recent starter.Causes
		for _, result := range d.Progress.Recent {
			recent.Add(result)
		}
		causes = recent.Sorted()
	}
	Faults(to, d.ID, failed, causes)
}

const runningShown = 10

func printRunning(to io.Writer, d *starter.Detail) {
	if len(d.Running) == 0 {
		return
	}
	fmt.Fprint(to, "\nrunning\n")
	for _, r := range d.Running[:min(len(d.Running), runningShown)] {
		what := fmt.Sprintf("item %d", r.Index)
		if r.Index < 0 {
			what = "a process starts (importing)"
		}
		line := fmt.Sprintf("  %s: %s on %s at %s for %s", what, r.Slot, r.Device, r.Worker, Span(time.Duration(r.For)))
		if r.Progress != "" {
			line += ", progress " + OneLine(r.Progress, 200)
		}
		fmt.Fprintln(to, line)
	}
	if more := len(d.Running) - runningShown; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
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
			line += ", next try in " + Span(wait)
		}
		fmt.Fprintln(to, line)
		if p.Waiting != "" {
			fmt.Fprintf(to, "    %s\n", OneLine(p.Waiting, 200))
		}
		if p.Fault != nil {
			fmt.Fprintf(to, "    last: %s\n", OneLine(p.Fault.Error(), 200))
		}
	}
	if more := len(d.Pending) - pendingShown; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
	}
}
