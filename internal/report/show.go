package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

// listed bounds the lines of running items and of chunks in flight.
const listed = 10

func Detail(to io.Writer, d *starter.Detail, causes []starter.Cause, page string, now time.Time) {
	to = Visible(to)
	p := d.Progress
	var peaks *gpumux.Peaks
	var faults map[gpumux.FaultKind]int64
	status, items := string(d.Status), Count(d.Items)
	var succeeded, failed, took, waits, memory, use string
	switch {
	case p != nil:
		faults, peaks, waits = p.Faults, p.Peak, p.WaitingFor
		use = p.GPU.String()
		if p.Paused {
			status = "paused"
		} else if p.Phase != gpumux.PhaseRunning {
			status += ", " + string(p.Phase)
		}
	case d.Summary != nil:
		faults, peaks = d.Summary.Faults, d.Summary.Peak
		use = d.Summary.GPU.String()
	}
	if d.Input != "" {
		items += " from " + d.Input
	}
	if d.Succeeded >= 0 {
		succeeded, failed = humanize.Comma(d.Succeeded), humanize.Comma(d.Failed)
		if len(faults) > 0 {
			failed += " (" + Kinds(faults) + ")"
		}
	}
	started := fmt.Sprintf("%s (%s)", d.Started.Local().Format(time.DateTime), Ago(now, d.Started))
	if !d.Closed.IsZero() {
		took = Span(d.Closed.Sub(d.Started))
	}
	if peaks != nil {
		memory = "peak per item: " + peaks.String()
	}
	Fields(to, "map", d.ID, "task", d.Task, "status", status, "items", items, "succeeded", succeeded, "failed", failed,
		"started", started, "took", took, "waits for", waits, "in flight", inFlight(p), "memory", memory, "GPU", use,
		"results", d.Output, "web UI", page)
	stagesTable(to, d.Stages)
	printServing(to, d)
	Lines(to, "waits: no worker has a healthy device", d.Sick)
	Lines(to, "notices", d.Notices)
	printFaults(to, d, causes)
	printRunning(to, d)
	printPending(to, d, now)
	if d.Fault != nil {
		fmt.Fprintf(to, "\nfailed: %s\n%s", d.Fault.Error(), FaultText(*d.Fault))
	}
}

func inFlight(p *gpumux.Progress) string {
	if p == nil {
		return ""
	}
	return english.Plural(p.InFlight, "chunk", "") + text.When(p.Chunk > 0, " of up to %d items", p.Chunk) + fmt.Sprintf(", window %d", p.Window) +
		text.When(p.Rate > 0, ", %s", PerSecond(p.Rate)) + text.When(p.Waiting > 0, "; %s items wait to be tried again", humanize.Comma(p.Waiting))
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

// Lines writes lines below a title, if there are any.
func Lines(to io.Writer, title string, lines []string) {
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
		if len(causes) == 0 {
			var recent starter.Causes
			for _, result := range d.Progress.Recent {
				recent.Add(result)
			}
			causes = recent.Sorted()
		}
	}
	Faults(to, d.ID, failed, causes, len(d.Stages) > 0)
}

// list writes what is in all, as far as there is room for it.
func list[T any](to io.Writer, title string, all []T, line func(T) string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s\n", title)
	for _, each := range all[:min(len(all), listed)] {
		fmt.Fprintln(to, line(each))
	}
	if more := len(all) - listed; more > 0 {
		fmt.Fprintf(to, "  and %d more\n", more)
	}
}

func printRunning(to io.Writer, d *starter.Detail) {
	list(to, "running", d.Running, func(r gpumux.RunningItem) string {
		what := fmt.Sprintf("item %d", r.Index)
		if r.Index < 0 {
			what = "a process starts (importing)"
		}
		return fmt.Sprintf("  %s: %s on %s at %s for %s", what, r.Slot, r.Device, r.Worker, Span(time.Duration(r.For))) +
			text.When(r.Progress != "", ", %s", cmp.Or(Engines(r), "progress "+OneLine(r.Progress, 200)))
	})
}

func printPending(to io.Writer, d *starter.Detail, now time.Time) {
	list(to, "in flight", d.Pending, func(p starter.Pending) string {
		wait := p.Next.Sub(now)
		line := fmt.Sprintf("  %s %s: %s, attempt %d", strings.TrimPrefix(p.Activity, "gpumux."), p.ID, p.State, max(1, p.Attempt)) +
			text.When(p.Worker != "", " at %s", p.Worker) +
			text.When(p.Finished > 0, ", %s finished", humanize.Comma(p.Finished)) +
			text.When(wait > 0, ", next try in %s", Span(wait)) +
			text.When(p.Waiting != "", "\n    %s", OneLine(p.Waiting, 200))
		if p.Fault != nil {
			line += "\n    last: " + OneLine(p.Fault.Error(), 200)
		}
		return line
	})
}

const (
	// maxMessage bounds a message in characters, maxLines a traceback or output in lines.
	maxMessage = 600
	maxLines   = 8
	// placesShown bounds the devices that are shown of a cause.
	placesShown = 4
)

// Faults writes all about each cause of so many failures of a map; 0 if unknown.
func Faults(to io.Writer, id string, failed int64, causes []starter.Cause, stages bool) {
	for _, c := range causes {
		printCause(to, c, stages)
		failed -= c.Count
	}
	if len(causes) > 0 && failed > 0 {
		fmt.Fprintf(to, "\nand %s more; `gpumux results %s --failed` has every fault\n", humanize.Comma(failed), id)
	}
}

func printCause(to io.Writer, c starter.Cause, stages bool) {
	r := c.Example
	f := *r.Fault
	f.Index = &r.Index
	stage := text.When(stages && f.Task != "", " in %s", OneLine(f.Task, 60))
	fmt.Fprintf(to, "\n%s × %s%s\n", humanize.Comma(c.Count), strings.TrimSpace(string(f.Kind)+" "+f.Class), stage)
	part := func(name, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(to, "  %-10s %s\n", name, strings.ReplaceAll(text, "\n", "\n             "))
		}
	}
	part("where", places(c))
	part("example", OneLine(f.Which(), 200))
	message := f
	message.Hint, message.Slot, message.Device, message.Class, message.Kind = "", "", "", "", ""
	part("message", shorten(strings.TrimPrefix(message.Error(), ": "), maxMessage))
	part("traceback", lastLines(f.Traceback))
	if f.Traceback == "" {
		part("printed", lastLines(cmp.Or(f.Tail, r.Printed)))
	}
	if f.Hint == "" && f.Kind == gpumux.FaultTaskError {
		f.Hint = "mend the code, then run the failed items again; --attempts where the cause passes by itself"
	}
	part("next", f.Hint)
}

// places are the devices with the most failures of a cause.
func places(c starter.Cause) string {
	var parts []string
	all := slices.SortedFunc(maps.Keys(c.Places), func(a, b string) int { return cmp.Or(cmp.Compare(c.Places[b], c.Places[a]), cmp.Compare(a, b)) })
	for _, place := range all[:min(len(all), placesShown)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", place, humanize.Comma(c.Places[place])))
	}
	if rest := len(all) - len(parts); rest > 0 {
		parts = append(parts, fmt.Sprintf("%d others", rest))
	}
	return strings.Join(parts, ", ")
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	for i, line := range lines {
		lines[i] = shorten(line, 200)
	}
	return strings.Join(lines, "\n")
}

const causesShown = 8

// Causes writes a line for each cause of so many failures, with an example.
func Causes(to io.Writer, indent string, failed int64, causes []starter.Cause, stages bool) {
	for _, c := range causes[:min(len(causes), causesShown)] {
		others := text.When(c.Count > 1, "%s like ", humanize.Comma(c.Count))
		fmt.Fprintf(to, "%s%s%s\n", indent, others, Failure(c.Example, stages))
		failed -= c.Count
	}
	if len(causes) > 0 && failed > 0 {
		fmt.Fprintf(to, "%sand %s more; every fault is in the results\n", indent, humanize.Comma(failed))
	}
}

// FaultText returns a fault's traceback and the last output of its process.
func FaultText(f gpumux.Fault) string {
	var b strings.Builder
	for _, part := range []struct{ title, text string }{{"traceback", f.Traceback}, {"the process printed last", f.Tail}} {
		if text := strings.TrimSpace(part.text); text != "" {
			fmt.Fprintf(&b, "%s:\n  %s\n", part.title, strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
	return b.String()
}

// Kinds counts failures by kind, the most frequent first: "3 crash, 1 timeout".
func Kinds(faults map[gpumux.FaultKind]int64) string {
	names := slices.SortedFunc(maps.Keys(faults), func(a, b gpumux.FaultKind) int {
		return cmp.Or(cmp.Compare(faults[b], faults[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s", humanize.Comma(faults[name]), name)
	}
	return strings.Join(parts, ", ")
}
