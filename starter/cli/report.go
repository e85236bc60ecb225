package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/cli/show"
)

type report struct {
	ID string `json:"id"`
	gpumux.Summary
	// File holds the results here, if they were fetched into one.
	File string `json:"file,omitempty"`
	// Files is how many files items kept, Keepers how many items did, Folder where they lie.
	Files   int64  `json:"files,omitempty"`
	Keepers int64  `json:"-"`
	Folder  string `json:"folder,omitempty"`
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
		return app.Exit(app.ExitFailed)
	}
	return nil
}

// printJSON writes the summary for programs; the results themselves lie in a file.
func (r *report) printJSON(to io.Writer) error {
	out := *r
	out.Results = nil
	return app.PrintJSON(to, out)
}

func (r *report) print(to io.Writer) {
	to = screen.Visible(to)
	elapsed := time.Duration(r.Elapsed)
	rate := ""
	if elapsed > 0 && r.Items > 0 {
		rate = ", " + screen.PerSecond(float64(r.Items)/elapsed.Seconds())
	}
	fmt.Fprintf(to, "map %s: %s items in %s%s\n", r.ID, humanize.Comma(r.Items), screen.Span(elapsed), rate)
	cached := ""
	if r.Cached > 0 {
		cached = fmt.Sprintf("  (%s from the cache)", humanize.Comma(r.Cached))
	}
	fmt.Fprintf(to, "  succeeded  %s%s\n", humanize.Comma(r.Succeeded), cached)
	if r.Failed > 0 {
		fmt.Fprintf(to, "  failed     %s  (%s)\n", humanize.Comma(r.Failed), show.Kinds(r.Faults))
		show.Causes(to, "    ", r.Failed, r.Causes)
	}
	if len(r.PassedOver) > 0 {
		fmt.Fprintf(to, "  passed     %s: for some time no worker served it with a healthy device\n", strings.Join(r.PassedOver, ", "))
	}
	if r.Peak != nil {
		fmt.Fprintf(to, "  memory     peak per item: %s\n", r.Peak)
	}
	if text := show.Reduced(r.Summary); text != "" {
		fmt.Fprintf(to, "  reduced    %s\n", text)
	}
	switch {
	case r.File != "":
		fmt.Fprintf(to, "  results    %s\n", r.File)
	case !r.printed:
		fmt.Fprintf(to, "  results    %s\n", cmp.Or(r.fetch, "gpumux results "+r.ID))
	}
	if r.Files > 0 {
		fmt.Fprintf(to, "  files      %s from %s items: %s\n", humanize.Comma(r.Files), humanize.Comma(r.Keepers),
			cmp.Or(r.Folder, "gpumux results "+r.ID+" --files DIR"))
	}
	if r.Page != "" {
		fmt.Fprintf(to, "  web UI     %s\n", r.Page)
	}
}

// tell says what a map came to, and which command runs its failed items again.
func tell(a *app.App, end *report, asJSON bool, retry string) error {
	if asJSON {
		return end.printJSON(a.Stdout)
	}
	if !a.Console.Quiet {
		end.print(a.Console)
		if end.Failed > 0 {
			a.Console.Say("  to run the failed items again: %s", retry)
		}
	}
	return nil
}

// looking is how long results are read for what made items fail.
const looking = 5 * time.Second

// causes are why the items of a completed map failed, as far as can be found out soon.
func causesOf(ctx context.Context, a *app.App, conn *app.Connection, summary gpumux.Summary) []starter.Cause {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	found, err := conn.Causes(ctx, summary)
	if err != nil {
		return nil // the kinds are known, and the store says why when the results are fetched
	}
	return found.Most()
}
