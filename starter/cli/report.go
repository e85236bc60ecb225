package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// report is what a map came to.
type report struct {
	ID string `json:"id"`
	gpumux.Summary
	// File holds the results here; empty when they went to standard output or were not fetched.
	File string `json:"file,omitempty"`
	// Page is the map's page in the Web UI, when it is known.
	Page string `json:"page,omitempty"`
	// Causes are why items failed, the most frequent first, as far as that was looked at.
	Causes []starter.Cause `json:"causes,omitempty"`
	// fetch is the command that fetches the results.
	fetch string
	// printed says that the results went to standard output.
	printed bool
}

// exit is nil when every item succeeded and what was to be reduced was.
func (r *report) exit() error {
	if r.Failed > 0 || r.ReduceFault != nil {
		return exitError(ExitFailed)
	}
	return nil
}

// printJSON writes the summary for programs; the results themselves lie in a file.
func (r *report) printJSON(to io.Writer) error {
	out := *r
	out.Results = nil
	return printJSON(to, out)
}

// print writes the summary for people.
func (r *report) print(to io.Writer) {
	to = screen.Visible(to)
	elapsed := time.Duration(r.Elapsed)
	rate := ""
	if elapsed > 0 && r.Items > 0 {
		rate = ", " + screen.PerSecond(float64(r.Items)/elapsed.Seconds())
	}
	fmt.Fprintf(to, "map %s: %s items in %s%s\n", r.ID, humanize.Comma(r.Items), screen.Span(elapsed), rate)
	fmt.Fprintf(to, "  succeeded  %s\n", humanize.Comma(r.Succeeded))
	if r.Failed > 0 {
		fmt.Fprintf(to, "  failed     %s  (%s)\n", humanize.Comma(r.Failed), kinds(r.Faults))
		printCauses(to, "    ", r.Failed, r.Causes)
	}
	if len(r.PassedOver) > 0 {
		fmt.Fprintf(to, "  passed     %s: for some time no worker served it with a healthy device\n", strings.Join(r.PassedOver, ", "))
	}
	if r.Peak != nil {
		fmt.Fprintf(to, "  memory     peak per item: %s\n", r.Peak)
	}
	if text := reduced(r.Summary); text != "" {
		fmt.Fprintf(to, "  reduced    %s\n", text)
	}
	switch {
	case r.File != "":
		fmt.Fprintf(to, "  results    %s\n", r.File)
	case !r.printed:
		fmt.Fprintf(to, "  results    %s\n", cmp.Or(r.fetch, "gpumux results "+r.ID))
	}
	if r.Page != "" {
		fmt.Fprintf(to, "  web UI     %s\n", r.Page)
	}
}

// tell says what a map came to, and which command runs its failed items again.
func (a *app) tell(end *report, asJSON bool, retry string) error {
	if asJSON {
		return end.printJSON(a.Stdout)
	}
	if !a.console.Quiet {
		end.print(a.console)
		if end.Failed > 0 {
			a.console.Say("  to run the failed items again: %s", retry)
		}
	}
	return nil
}

// causesShown is how many causes are shown to people.
const causesShown = 8

// printCauses writes a line for each cause of so many failures, with an example.
func printCauses(to io.Writer, indent string, failed int64, causes []starter.Cause) {
	for _, c := range causes[:min(len(causes), causesShown)] {
		like := ""
		if c.Count > 1 {
			like = humanize.Comma(c.Count) + " like "
		}
		fmt.Fprintf(to, "%s%s%s\n", indent, like, screen.Failure(c.Example))
		failed -= c.Count
	}
	if len(causes) > 0 && failed > 0 {
		fmt.Fprintf(to, "%sand %s more; every fault is in the results\n", indent, humanize.Comma(failed))
	}
}

// looking is how long results are read for what made items fail.
const looking = 5 * time.Second

// causes are why the items of a completed map failed, as far as can be found out soon.
func (a *app) causes(ctx context.Context, conn *connection, summary gpumux.Summary) []starter.Cause {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	found, _, err := conn.Causes(ctx, summary)
	if err != nil {
		return nil // the kinds are known, and the store says why when the results are fetched
	}
	return found.Most()
}

// reduced is what the values came to, shortened; empty for a map that reduces nothing.
func reduced(s gpumux.Summary) string {
	switch {
	case s.ReduceFault != nil:
		return "not: " + screen.OneLine(s.ReduceFault.Error(), 200)
	case s.ReducedOutput != "":
		return s.ReducedOutput
	case s.Reduced != nil:
		return screen.OneLine(string(s.Reduced), 200)
	}
	return ""
}

// kinds writes how many items failed of what, the most first.
func kinds(faults map[gpumux.Kind]int64) string {
	names := slices.SortedFunc(maps.Keys(faults), func(a, b gpumux.Kind) int {
		return cmp.Or(cmp.Compare(faults[b], faults[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s", humanize.Comma(faults[name]), name)
	}
	return strings.Join(parts, ", ")
}
