package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
)

// report is what a map came to.
type report struct {
	ID string `json:"id"`
	gpumux.Summary
	// File holds the results here; empty when they went to standard output or were not fetched.
	File string `json:"file,omitempty"`
	// Page is the map's page in the Web UI, when it is known.
	Page   string `json:"page,omitempty"`
	faults []gpumux.Result
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
	to = newVisible(to)
	elapsed := time.Duration(r.Elapsed)
	rate := ""
	if elapsed > 0 && r.Items > 0 {
		rate = ", " + perSecond(float64(r.Items)/elapsed.Seconds())
	}
	fmt.Fprintf(to, "map %s: %s items in %s%s\n", r.ID, humanize.Comma(r.Items), span(elapsed), rate)
	fmt.Fprintf(to, "  succeeded  %s\n", humanize.Comma(r.Succeeded))
	if r.Failed > 0 {
		fmt.Fprintf(to, "  failed     %s  (%s)\n", humanize.Comma(r.Failed), kinds(r.Faults))
		for _, result := range r.faults {
			if result.Fault != nil {
				fmt.Fprintf(to, "    item %d: %s\n", result.Index, oneLine(result.Fault.Error(), 200))
			}
		}
		if more := r.Failed - int64(len(r.faults)); len(r.faults) > 0 && more > 0 {
			fmt.Fprintf(to, "    and %s more; every fault is in the results\n", humanize.Comma(more))
		}
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
		fmt.Fprintf(to, "  results    gpumux results %s\n", r.ID)
	}
	if r.Page != "" {
		fmt.Fprintf(to, "  web UI     %s\n", r.Page)
	}
}

// reduced is what the values came to, shortened; empty for a map that reduces nothing.
func reduced(s gpumux.Summary) string {
	switch {
	case s.ReduceFault != nil:
		return "not: " + oneLine(s.ReduceFault.Error(), 200)
	case s.ReducedOutput != "":
		return s.ReducedOutput
	case s.Reduced != nil:
		return oneLine(string(s.Reduced), 200)
	}
	return ""
}

// kinds writes how many items failed of what, the most first.
func kinds(faults map[gpumux.Kind]int64) string {
	names := slices.Sorted(maps.Keys(faults))
	slices.SortStableFunc(names, func(a, b gpumux.Kind) int { return int(faults[b] - faults[a]) })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s", humanize.Comma(faults[name]), name)
	}
	return strings.Join(parts, ", ")
}
