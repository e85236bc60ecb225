package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/cli/show"
	"github.com/gpumux/gpumux/starter/fleet"
)

func began(h *starter.Handle) string {
	switch h.Entry {
	case starter.Attached:
		return "map " + h.ID + " runs already"
	case starter.Continued:
		return "map " + h.ID + " goes on with the items that have no result"
	case starter.Retried:
		return "map " + h.ID + " runs its failed items again"
	case starter.Found:
		return "map " + h.ID + " is finished"
	}
	return "map " + h.ID + " started"
}

// comeBack says how to return to a map that goes on without this process.
func comeBack(a *app.App, id string) {
	a.Console.Note("  follow it   %s\n  look at it  %s\n  results     %s\n  stop it     %s",
		a.Command("wait "+id), a.Command("show "+id), a.Command("results "+id), a.Command("cancel "+id))
}

func detached(a *app.App, h *starter.Handle) error {
	a.Console.Say("detached; map %s goes on", h.ID)
	comeBack(a, h.ID)
	return app.Exit(app.ExitInterrupted)
}

// detach ends a command that was to start a map and no more.
func detach(a *app.App, h *starter.Handle) error {
	comeBack(a, h.ID)
	_, err := fmt.Fprintln(a.Stdout, h.ID)
	return err
}

// follow watches a map to its end. With a ladder it says when no worker serves it.
func follow(ctx context.Context, a *app.App, conn *app.Connection, h *starter.Handle, ladder []string) (*report, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var telling sync.WaitGroup
	b := screen.NewBar(a.Console)
	if h.Running() {
		telling.Go(func() { tellStuck(watching, a, h, b) })
		if ladder != nil {
			telling.Go(func() { diagnose(watching, a, conn.Starter, ladder, h.Task) })
		}
	}
	summary, err := h.Watch(ctx, b.Show)
	stop()
	telling.Wait()
	a.Console.Close()
	if err != nil {
		return nil, err
	}
	return &report{ID: h.ID, Summary: summary, Page: conn.Link(h.ID), fetch: a.Command("results " + h.ID)}, nil
}

// diagnosing is how often it is asked who serves a map's queues while nobody does.
const diagnosing = 3 * time.Second

// diagnose says when nobody serves a map, and when somebody does again.
func diagnose(ctx context.Context, a *app.App, s *starter.Starter, ladder []string, task string) {
	said := false
	for {
		err := checkServed(ctx, s, ladder, task)
		var missing *fleet.NoWorkerError
		switch {
		case errors.As(err, &missing) && !said:
			said = true
			what := "the map waits (--no-wait fails instead)"
			if len(ladder) > 1 {
				what = "the next pool takes its work when its time is over (--patience)"
			}
			a.Console.Say("%v; %s", err, what)
		case err == nil && said:
			a.Console.Say("a worker has come")
			return
		case err == nil:
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(diagnosing):
		}
	}
}

// tellStuck says what reading and writing the store fails at again and again, each
// message once, and tells the bar what else is tried again.
func tellStuck(ctx context.Context, a *app.App, h *starter.Handle, b *screen.Bar) {
	said := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(diagnosing):
		}
		retries, err := h.Retries(ctx)
		if err != nil {
			continue // the server may be back soon; Wait tells when it stays away
		}
		b.Retried(retries.Chunks)
		for _, p := range retries.Stuck {
			text := screen.OneLine(p.Fault.Error(), 300)
			if !said[text] {
				said[text] = true
				a.Console.Say("%s has failed %d times and is tried again: %s", strings.TrimPrefix(p.Activity, "gpumux."), p.Attempt-1, text)
			}
		}
	}
}

// checkServed returns a *fleet.NoWorkerError when the map could not begin.
func checkServed(ctx context.Context, s *starter.Starter, ladder []string, task string) error {
	rungs, err := s.Fleet().Serving(ctx, ladder)
	if err != nil {
		return err
	}
	missing := &fleet.NoWorkerError{}
	switch {
	case !rungs[0].Served():
		missing.Queue = rungs[0].Queue
	case len(rungs) > 1 && !rungs[1].Served():
		missing.Queue, missing.Task = rungs[1].Queue, task
		if workers, err := s.Fleet().Workers(ctx); err == nil { // only for the hint
			missing.Pools = fleet.PoolsOf(workers, task)
		}
	default:
		return nil
	}
	return missing
}

// explain prints the traceback of a map's failure, and returns the error.
func explain(a *app.App, err error) error {
	var ended *starter.EndedError
	if errors.As(err, &ended) {
		a.Console.Write([]byte(show.FaultText(ended.Fault)))
	}
	return err
}

func waitCommand(a *app.App) *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Follow a map to its end",
		Long: `Follow a map to its end and say what it came to. The exit code is that of ` + "`gpumux map`" + `: 0 when every item
succeeded, 1 when some failed. Ctrl-C leaves the map running.`,
		Example: "  gpumux wait embed-3fa92c01d4e5 && gpumux results embed-3fa92c01d4e5 --out vectors.jsonl",
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress and no summary")
	return a.OnMap(c, func(ctx context.Context, conn *app.Connection, h *starter.Handle) error {
		a.Console.Quiet = quiet
		var ladder []string
		if h.Running() {
			if in, err := h.Input(ctx); err == nil {
				ladder = in.Rungs()
			}
		}
		end, err := follow(ctx, a, conn, h, ladder)
		if errors.Is(err, app.ErrInterrupted) {
			return detached(a, h)
		}
		if err != nil {
			return explain(a, err)
		}
		end.Causes = causesOf(ctx, a, conn, end.Summary)
		if err := tell(a, end, asJSON, a.Command("retry "+h.ID)); err != nil {
			return err
		}
		return end.exit()
	})
}
