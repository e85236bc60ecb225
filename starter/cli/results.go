package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
)

func (a *program) resultsCommand() *cobra.Command {
	f := &resultsFlags{}
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Fetch the results of a map",
		Long: `Fetch the results of a finished map, one JSON line per item in input order. With --follow those of a running
map as they come, each once all items before it have finished, until the map ends; Ctrl-C leaves the map
running. With --partial those that a map has which still runs, was cancelled or failed, or that an interrupted
map with --local left, in no order; the exit code is 1 then.

--files writes what items kept with gpumux.save too, as DIR/<index>/<name>.

An ID of a map with --local is looked for on this machine first; its command need not run any more.

The exit code is 0 when every item succeeded, 1 when some failed.`,
		Example: `  gpumux results embed-3fa92c01d4e5 --out vectors.jsonl
  gpumux results embed-3fa92c01d4e5 --failed | jq .fault.message
  gpumux results embed-3fa92c01d4e5 --follow --unordered | jq -c .value
  gpumux results embed-3fa92c01d4e5 --partial --out so-far.jsonl
  gpumux results embed-3fa92c01d4e5 --out results.jsonl --files plots`,
		Args: app.OneID,
	}
	c.Flags().StringVar(&f.out, "out", "-", "a file, JSON lines, compressed when it ends in .gz or .zst, or .parquet, .arrow, .feather or .npy; or - for standard output")
	c.Flags().StringVar(&f.files, "files", "", "a `folder` for files that items kept with gpumux.save, as <index>/<name>")
	c.Flags().BoolVar(&f.Values, "values", false, "only the values; null for a failed item")
	c.Flags().BoolVar(&f.Failed, "failed", false, "only the failed items")
	c.Flags().BoolVar(&f.follow, "follow", false, "of a running map: the results as they come")
	registerExact(c.Flags(), &f.Exact)
	c.Flags().BoolVar(&f.partial, "partial", false, "of a map that is not complete: the results that it has")
	c.Flags().BoolVar(&f.Unordered, "unordered", false, "with --follow: each as soon as it is there, in any order")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return a.runResults(c.Context(), args[0], f) }
	return c
}

// resultsFlags are the flags of `gpumux results`.
type resultsFlags struct {
	files.Filter
	starter.FollowOptions
	out, files      string
	follow, partial bool
}

func (f *resultsFlags) check() error {
	switch {
	case f.Unordered && !f.follow:
		return app.Usage("--unordered goes with --follow; the results of a finished map are in order")
	case f.Values && f.Failed:
		return app.Usage("--values and --failed exclude each other: a failed item has no value")
	case f.partial && f.follow:
		return app.Usage("--partial and --follow exclude each other: one gives what is there, the other waits for the rest")
	}
	if f.files != "" {
		if err := files.CheckFolder(f.files); err != nil {
			return err
		}
	}
	return f.Suits(f.out, f.partial || f.Unordered)
}

func (a *program) runResults(ctx context.Context, id string, f *resultsFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	to, err := files.Choose(f.out, a.Stdout, false, screen.IsTerminal(a.Stdout))
	if err != nil {
		return err
	}
	to.Filter, to.Note, to.Kept = f.Filter, a.Console.Note, &files.Kept{Folder: f.files}
	if state, here := a.stateHere(id); here {
		return a.resultsHere(ctx, state, f, to)
	}
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	h, err := conn.Open(ctx, id)
	if err != nil {
		return err
	}
	to.Kept.Open = filesOf(conn.Starter, h.Output)
	switch {
	case f.follow:
		if _, err := to.Write(ctx, h.FollowLines(ctx, f.FollowOptions)); err != nil {
			if errors.Is(err, app.ErrInterrupted) {
				a.Console.Say("map %s goes on", h.ID)
				return app.Exit(app.ExitInterrupted)
			}
			return a.explain(err)
		}
	case h.Running() && f.partial:
		return a.partial(ctx, h.ID, "still runs", h.Items, h.Stored(ctx), to)
	case h.Running():
		return &starter.StillRunning{ID: h.ID, Results: true}
	}
	summary, err := h.Wait(ctx)
	if err != nil {
		return a.unfinished(ctx, h, err, f.partial, to)
	}
	if !f.follow {
		to.Kept.Open = filesOf(conn.Starter, summary.Output)
		if _, err := to.Write(ctx, conn.Lines(ctx, summary)); err != nil {
			return err
		}
	}
	a.tellKept(to.Kept)
	return (&report{Summary: summary}).exit()
}

// tellKept says that items kept files which were not fetched.
func (a *program) tellKept(kept *files.Kept) {
	if kept.Files > 0 && kept.Folder == "" {
		a.Console.Note("%s items kept files, %s in all; --files DIR writes them", humanize.Comma(kept.Items), humanize.Comma(kept.Files))
	}
}

// unfinished is what `results` does with a map that did not complete: it gives what there is when it was told to.
func (a *program) unfinished(ctx context.Context, h *starter.Handle, err error, partial bool, to files.Output) error {
	how := ""
	switch {
	case errors.As(err, new(*starter.Canceled)):
		how = "was cancelled"
	case errors.As(err, new(*starter.Terminated)):
		how = "was terminated"
	case errors.As(err, new(*starter.MapFailed)):
		how = "failed"
	}
	switch {
	case how != "" && partial:
		return a.partial(ctx, h.ID, how, h.Items, h.Stored(ctx), to)
	case how != "" && h.Output != "":
		return a.explain(fmt.Errorf("%w; --partial gives the results that it has", err))
	}
	return a.explain(err)
}

// partial writes the results that there are of a map, and says that they are not all.
func (a *program) partial(ctx context.Context, id, how string, items int64, lines iter.Seq2[[]byte, error], to files.Output) error {
	n := int64(0)
	counted := func(yield func([]byte, error) bool) {
		for line, err := range lines {
			if err == nil {
				n++
			}
			if !yield(line, err) {
				return
			}
		}
	}
	if _, err := to.Write(ctx, counted); err != nil {
		return err
	}
	of := ""
	if items >= 0 {
		of = " of " + humanize.Comma(items)
	}
	a.Console.Say("map %s %s: it has %s%s results so far, which are not in order", id, how, humanize.Comma(n), of)
	return app.Exit(app.ExitFailed)
}

// filesOf opens the files that items keep of the map with a results file.
func filesOf(s *starter.Starter, output string) func(context.Context, int64, string) (io.ReadCloser, error) {
	return func(ctx context.Context, index int64, name string) (io.ReadCloser, error) {
		return s.File(ctx, output, index, name)
	}
}

// resultsHere writes the results of a local map, whose server is gone.
func (a *program) resultsHere(ctx context.Context, state local.State, f *resultsFlags, to files.Output) error {
	s, err := a.soFarHere(ctx, state)
	if err != nil {
		return err
	}
	defer s.close()
	to.Kept.Open = s.file
	if !s.whole {
		if f.partial {
			return a.partial(ctx, s.id, "is "+s.status, -1, s.lines, to)
		}
		return app.Usage("map %s is %s, and its own command writes its results; --partial gives those that it has so far", s.id, s.status)
	}
	causes, err := to.Write(ctx, s.lines)
	if err != nil {
		return err
	}
	a.tellKept(to.Kept)
	if causes.Count > 0 {
		return app.Exit(app.ExitFailed)
	}
	return nil
}
