package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

// formOf are the flags of results in the form of OpenAI's batches, or not.
var formOf = map[bool]string{true: " --openai"}

func comeBack(a *app, id string, openAI bool) {
	a.console.Note("  follow it   %s\n  look at it  %s\n  results     %s\n  stop it     %s",
		a.command("wait "+id), a.command("show "+id), a.command("results "+id+formOf[openAI]), a.command("cancel "+id))
}

func detached(a *app, h *starter.Handle, openAI bool) error {
	a.console.Say("detached; map %s goes on", h.ID)
	comeBack(a, h.ID, openAI)
	return exitInterrupted
}

// follow watches a map to its end, and meanwhile says what holds it up. Without its steps
// it does not ask for workers. Of a model it shows what its engines do.
func follow(ctx context.Context, a *app, conn *connection, h *starter.Handle, steps []gpumux.MapInput, model bool, bar *report.Bar) (*ending, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		if h.Running() {
			tellTroubles(watching, a, conn.Starter, h, steps, bar, model && !a.console.Quiet)
		}
	}()
	wait := h.Wait
	if !a.console.Quiet {
		wait = func(ctx context.Context) (gpumux.Summary, error) { return h.Watch(ctx, bar.Show) }
	}
	summary, err := wait(ctx)
	stop()
	<-over
	a.console.Close()
	if err != nil {
		return nil, err
	}
	return &ending{ID: h.ID, Summary: summary, Page: conn.link(h.ID)}, nil
}

const diagnosing = 3 * time.Second

// tellTroubles says once that no worker serves a step, why no device may take work, how
// the store fails again and again, and tells the bar of chunks in flight, until ctx ends.
func tellTroubles(ctx context.Context, a *app, s *starter.Starter, h *starter.Handle, steps []gpumux.MapInput, bar *report.Bar, model bool) {
	idle := 0 // looks in a row that found nothing begun
	began, asked, engines := time.Now(), time.Time{}, ""
	unserved, shown := false, map[string]bool{}
	say := func(text string) {
		if !shown[text] {
			shown[text] = true
			a.console.Say("%s", text)
		}
	}
	for {
		if steps != nil {
			at, err := checkServed(ctx, s, steps)
			switch {
			case errors.As(err, new(*fleet.NoWorkerError)):
				what := "the map waits (--no-wait fails instead)"
				if len(steps[at].Rungs()) > 1 {
					what = "the next pool takes its work when its time is over (--patience)"
				}
				unserved = true
				say(fmt.Sprintf("%v; %s", err, what))
			case err == nil:
				if unserved {
					say("a worker has come")
				}
				steps = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(diagnosing):
		}
		counted := bar.Counted.Load() // before the look, or a chunk that ends meanwhile counts twice
		retries, err := h.Retries(ctx, starter.MaxPending)
		if err != nil {
			continue // the server may be back soon; Wait tells when it stays away
		}
		bar.Finished.Store(counted + retries.Finished)
		if idle++; !retries.Idle {
			idle = 0
			if model && time.Since(asked) >= min(time.Since(began)/20, 10*time.Second) { // it asks all workers of the map
				workers := &fleet.Fleet{Client: s.Client, Namespace: s.Namespace}
				engines, asked = report.Engines(fleet.Running(workers.Offers(ctx, retries.Workers), h.ID)...), time.Now()
			}
			bar.Say(engines)
		}
		if idle > 1 && idle&(idle-1) == 0 { // more and more rarely, since it asks all workers
			sick, _ := h.Sick(ctx)
			if bar.Say(""); len(sick) > 0 {
				bar.Say("waits for a healthy device")
			}
			for _, why := range sick {
				say("note: the map waits: " + report.OneLine(why, 400))
			}
		}
		for _, p := range retries.Stuck {
			say(fmt.Sprintf("%s has failed and is tried again: %s", strings.TrimPrefix(p.Activity, "gpumux."), report.OneLine(p.Fault.Error(), 300)))
		}
	}
}

// watchReader ends a context when the reader of a stream has gone. Without the handler of
// SIGPIPE the next write would end this program in the middle of its items.
func watchReader(ctx context.Context, stream io.Writer, stop context.CancelCauseFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if pipe, ok := stream.(*os.File); ok {
		go func() {
			if abandoned(ctx, pipe) {
				stop(fmt.Errorf("write the results: %w", syscall.EPIPE))
			}
		}()
	}
}

// served reports as an error, with --no-wait, that no worker could begin a step.
func (f *taskFlags) served(ctx context.Context, conn *connection, steps []gpumux.MapInput) error {
	if !f.noWait {
		return nil
	}
	_, err := checkServed(ctx, conn.Starter, steps)
	return err
}

// checkServed returns a *fleet.NoWorkerError, and where, if no worker could begin a step.
func checkServed(ctx context.Context, s *starter.Starter, steps []gpumux.MapInput) (at int, err error) {
	workers := &fleet.Fleet{Client: s.Client, Namespace: s.Namespace}
	for at, step := range steps {
		rungs, err := workers.Serving(ctx, step.Rungs()[:1])
		switch {
		case err != nil:
			return at, err
		case !rungs[0].Served():
			return at, &fleet.NoWorkerError{Queue: rungs[0].Queue}
		case !rungs[1].Served():
			missing := &fleet.NoWorkerError{Queue: rungs[1].Queue, Task: step.Task}
			if workers, err := workers.Workers(ctx); err == nil { // only for the hint
				missing.Pools = fleet.PoolsOf(workers, step.Task)
			}
			return at, missing
		}
	}
	return 0, nil
}

// explain prints the traceback of a map's failure, and returns the error.
func explain(a *app, err error) error {
	if ended, ok := errors.AsType[*starter.EndedError](err); ok {
		a.console.Write([]byte(report.FaultText(ended.Fault)))
	}
	return err
}

func waitCommand(a *app) *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Follow a map to its end",
		Long: `Follow a map to its end and say what it came to. The exit code is that of ` + "`gpumux map`" + `: 0 when every item
succeeded, 1 when some failed. Ctrl-C leaves the map running.`,
		Example: "  gpumux wait embed-3fa92c01d4e5 && gpumux results embed-3fa92c01d4e5 --out vectors.jsonl",
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, quietUsage)
	return a.onMap(c, func(ctx context.Context, conn *connection, h *starter.Handle) error {
		a.console.Quiet = quiet
		var steps []gpumux.MapInput
		in, err := h.Input(ctx)
		if err == nil && h.Running() {
			steps = in.Steps()
		}
		openAI := in.Key == requestKey
		end, err := follow(ctx, a, conn, h, steps, openAI || in.Task == modelTask, report.NewBar(a.console))
		if errors.Is(err, errInterrupted) {
			return detached(a, h, openAI)
		}
		if err != nil {
			return explain(a, err)
		}
		end.Causes = causesOf(ctx, a, conn, h.ID, end.Failed, &end.Summary)
		end.fetch = a.command("results " + h.ID + formOf[openAI])
		if err := printReport(a, end, asJSON, a.command("retry "+h.ID+formOf[openAI])); err != nil {
			return err
		}
		return end.exit()
	})
}

type ending struct {
	ID string `json:"id"`
	gpumux.Summary
	*tokens
	// File holds the results here, if they were fetched into one.
	File string `json:"file,omitempty"`
	// Unfit counts the results that do not fit --schema.
	Unfit int64 `json:"unfit,omitempty"`
	// Files counts the files that items kept, Keepers those items. Folder has the files.
	Files   int64  `json:"files,omitempty"`
	Keepers int64  `json:"-"`
	Folder  string `json:"folder,omitempty"`
	// Page is the map's page in the Web UI, when it is known.
	Page string `json:"page,omitempty"`
	// Causes group the failures, the most frequent first; nil if nobody read them.
	Causes []starter.Cause `json:"causes,omitempty"`
	// fetch is the command that fetches the results, spent says what tokens they have.
	fetch, spent string
	// printed says that the results went to standard output, partly that only what had
	// failed ran.
	printed, partly bool
}

func (r *ending) exit() error {
	if r.Failed > 0 {
		return exitFailed
	}
	return nil
}

func (r *ending) print(to io.Writer) {
	to = report.Visible(to)
	elapsed := time.Duration(r.Elapsed)
	rate := text.When(elapsed > 0 && r.Items > 0 && !r.partly, ", %s", report.PerSecond(float64(r.Items)/elapsed.Seconds()))
	fmt.Fprintf(to, "map %s: %s items in %s%s\n", r.ID, humanize.Comma(r.Items), report.Span(elapsed), rate)
	say := func(label, text string) {
		if text != "" {
			fmt.Fprintf(to, "  %-10s %s\n", label, text)
		}
	}
	say("succeeded", humanize.Comma(r.Succeeded))
	if r.Failed > 0 {
		say("failed", fmt.Sprintf("%s  (%s)", humanize.Comma(r.Failed), report.Kinds(r.Faults)))
		report.Causes(to, "    ", r.Failed, r.Causes, len(r.Stages) > 0)
	}
	for _, line := range report.StageLines(r.Stages) {
		say("stage", line)
	}
	if len(r.PassedOver) > 0 {
		say("passed", strings.Join(r.PassedOver, ", ")+": for some time no worker served it with a healthy device")
	}
	if r.Peak != nil && !r.partly {
		say("memory", "peak per item: "+r.Peak.String())
	}
	say("GPU", r.GPU.String())
	say("tokens", r.spent)
	if say("results", r.File); r.File == "" && !r.printed {
		say("results", cmp.Or(r.fetch, "gpumux results "+r.ID))
	}
	if r.Files > 0 {
		say("files", fmt.Sprintf("%s from %s items: %s", humanize.Comma(r.Files), humanize.Comma(r.Keepers), cmp.Or(r.Folder, "gpumux results "+r.ID+" --files DIR")))
	}
	say("web UI", r.Page)
}

func printReport(a *app, end *ending, asJSON bool, retry string) error {
	if asJSON {
		out := *end
		out.Results = nil // they lie in a file
		return printJSON(a.Stdout, out)
	}
	if !a.console.Quiet {
		end.print(a.console)
		if end.Failed > 0 {
			a.console.Say("  to run the failed items again: %s", retry)
		}
	}
	return nil
}

// abandoned waits until the reader of the pipe or socket has gone or ctx ends, and
// reports true if the reader has. For other files it waits for ctx.
func abandoned(ctx context.Context, pipe *os.File) bool {
	const look = 500 // milliseconds; a reader that goes ends the wait at once
	info, err := pipe.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		<-ctx.Done()
		return false
	}
	for ctx.Err() == nil {
		on := []unix.PollFd{{Fd: int32(pipe.Fd())}}
		n, err := unix.Poll(on, look)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if n > 0 && on[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			return true
		}
	}
	return false
}
