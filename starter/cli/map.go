package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cause"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
)

func (a *program) mapCommand() *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "map TASK --in FILE",
		Short: "Map a task over items; given again it goes on where it was",
		Long: `Map a task over items and write one result per item, in order: {"index":0,"value":…} or, for an item that
failed, {"index":7,"fault":{…}}.

TASK is a name that the workers know. With --local it is a function here, file.py:function,
module:function or file.R:function, or a command after --, which gets an item on its standard input, and in
the place of {} in its words, and prints the result.

A map without --id is named by its task, input and options: given again while it runs you watch it, given
again after it was stopped it goes on with the items that have no result, given again when it was finished
it runs anew. With --id it goes on, or shows what it came to. Ctrl-C leaves the map running on the server;
with --local it stops the map, and the same command goes on with it. With --retry the same command, also with
other options, runs only what failed; those options count. A map with --local is finished when its
results are written: what keeps them from it, such as a full disk, costs no item a second run. When TASK's own
file, a module beside it that it imports, or a file that the command names has changed it is a new map, unless
--retry asks for the failed items of the old one; put the code back and the old one goes on.`,
		Example: `  gpumux map embed.py:embed --in items.jsonl --local
  gpumux map embed --in items.csv --out vectors.jsonl --pool gpu,cpu
  gpumux map resize --glob 'images/*.png' --detach
  gpumux map words --in s3://bucket/texts.jsonl.gz --reduce sum
  gpumux map rank --in results:embed-3fa92c01d4e5 --out ranks.parquet
  gpumux map --range 0:1000 --local -- ./simulate --json
  gpumux map --in names.txt --lines --local --output text -- convert {} -resize 50% png:{}.png`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(c)
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if err.Error() == "unknown flag: --follow" {
			return errors.New("--follow: a map has an end; `gpumux stream TASK --follow FILE` runs what a file gets as it comes")
		}
		return err
	})
	c.RunE = func(c *cobra.Command, args []string) error { return a.runMap(c, args, f) }
	return c
}

// runMap checks everything that can be checked here, then starts and follows the map.
func (a *program) runMap(c *cobra.Command, args []string, f *mapFlags) error {
	task, command, err := f.check(c, args)
	if err != nil {
		return err
	}
	a.Console.Quiet = f.quiet
	out, err := files.Choose(f.out, a.Console.Above(a.Stdout), f.json, screen.IsTerminal(a.Stdout))
	if err != nil {
		return err
	}
	out.Note, out.Exact = a.Console.Note, f.exact
	if f.local {
		if err := a.NeedLocal("--local"); err != nil {
			return err
		}
	}
	m := starter.Map{ID: f.id, Retry: f.retry, Input: f.input()}
	m.Input.Task = task
	var here *local.Task
	if f.local {
		if here, err = f.findTask(task, command, f.reduce); err != nil {
			return err
		}
	}
	ctx := c.Context()
	if !f.local && f.overURL() {
		return a.mapURL(ctx, f, m, out)
	}
	over, err := a.items(ctx, f)
	if err != nil {
		return err
	}
	defer over.Remove()
	if over.IsOneList() {
		a.Console.Note("%s holds one list, so that is the one item; for an item of each of its values: jq -c '.[]'", over.Label)
	}
	if err := put(over, &m); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if f.local {
		return a.mapLocally(ctx, f, m, here, out)
	}
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return a.mapThere(ctx, conn, f, m, out)
}

// mapURL runs a map over a URL, or over the results of a map.
func (a *program) mapURL(ctx context.Context, f *mapFlags, m starter.Map, out files.Output) error {
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	over, err := a.itemsOf(ctx, conn, f)
	if err != nil {
		return err
	}
	defer over.Remove()
	if err := put(over, &m); err != nil {
		return err
	}
	return a.mapThere(ctx, conn, f, m, out)
}

// mapThere runs the map on the workers of a server.
func (a *program) mapThere(ctx context.Context, conn *app.Connection, f *mapFlags, m starter.Map, out files.Output) error {
	if err := f.pin(ctx, conn.Starter, &m.Input); err != nil {
		return err
	}
	if f.noWait {
		if err := checkServed(ctx, conn.Starter, m.Input.Rungs(), m.Input.Task); err != nil {
			return err
		}
	}
	h, err := a.start(ctx, conn.Starter, m, f)
	if err != nil {
		return err
	}
	if f.detach {
		a.Console.Note("%s", began(h))
		return a.detach(h)
	}
	_, err = a.finish(ctx, conn, h, m.Input.Rungs(), out, f)
	return err
}

// start starts a map, or finds it. Of a map whose items all succeeded --retry finds what it came to.
func (a *program) start(ctx context.Context, s *starter.Starter, m starter.Map, f *mapFlags) (*starter.Handle, error) {
	h, err := s.Start(ctx, m)
	var nothing *starter.NothingFailed
	if errors.As(err, &nothing) {
		a.Console.Note("%v", err)
		m.ID, m.Retry = nothing.ID, false
		h, err = s.Start(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	if h.Entry != starter.Started {
		if own, err := h.Input(ctx); err == nil {
			if other := f.otherThan(own, m.Input); len(other) > 0 {
				a.Console.Say("map %s was started before, and its own options stand; here %s says otherwise and changes nothing",
					h.ID, strings.Join(other, ", "))
			}
		}
	}
	return h, nil
}

// otherThan lists the flags that ask for something else than a map was started with.
func (f *mapFlags) otherThan(own, here gpumux.MapInput) []string {
	var other []string
	for _, option := range []struct {
		flag    string
		differs bool
	}{
		{"--pool", len(f.pools) > 0 && !slices.Equal(own.Rungs(), here.Rungs())},
		{"--patience", here.Patience != 0 && own.Patience != here.Patience},
		{"--mode", here.Mode != "" && own.Mode != here.Mode},
		{"--timeout", here.Timeout != 0 && own.Timeout != here.Timeout},
		{"--attempts", here.Attempts > 1 && own.Attempts != here.Attempts},
		{"--backoff", here.Backoff != 0 && own.Backoff != here.Backoff},
		{"--fail-fast", here.FailFast && !own.FailFast},
		{"--arg", here.Arg != nil && string(own.Arg) != string(here.Arg)},
		{"--key", here.Key != "" && own.Key != here.Key},
		{"--with-item", here.WithItem && !own.WithItem},
		{"--max-failures", here.MaxFailures != "" && own.MaxFailures != here.MaxFailures},
		{"--reduce", here.Reduce != "" && own.Reduce != here.Reduce},
		{"--chunk", here.Chunk != 0 && own.Chunk != here.Chunk},
		{"--window", here.Window != 0 && own.Window != here.Window},
		{"--priority", here.Priority != 0 && own.Priority != here.Priority},
		{"--fairness-key", here.FairnessKey != "" && own.FairnessKey != here.FairnessKey},
	} {
		if option.differs {
			other = append(other, option.flag)
		}
	}
	return other
}

// finish follows a map to its end, writes the results and says what it came to. Delivered says that the results were written.
func (a *program) finish(ctx context.Context, conn *app.Connection, h *starter.Handle, ladder []string, out files.Output, f *mapFlags) (
	delivered bool, err error) {
	if h.Entry == starter.Attached && !f.local {
		a.Console.Note("map %s runs already; following it", h.ID)
	}
	out.Kept = &files.Kept{Folder: f.files, Open: filesOf(conn.Starter, h.Output)}
	if f.local {
		out.Kept.Folder = cmp.Or(f.files, h.ID+".files") // where they lie is gone when the command has ended
	}
	again := cmp.Or(conn.Again, "`gpumux results "+h.ID+"` fetches them")
	within, written := ctx, func() (*cause.Groups, error) { return nil, nil }
	if out.Path == "" && !f.valueOnly() && h.Running() {
		within, written = a.stream(ctx, h, out, f.unordered)
	}
	end, err := a.follow(within, conn, h, ladder)
	streamed, failed := written()
	if errors.Is(err, app.ErrInterrupted) && !f.local {
		return false, a.detached(h)
	}
	if errors.Is(failed, syscall.EPIPE) {
		a.Console.Note("nobody reads the results of map %s any more; %s", h.ID, again)
		return false, app.Exit(app.ExitInterrupted)
	}
	if failed != nil && ctx.Err() == nil && (err == nil || errors.Is(err, errRows)) {
		return false, fmt.Errorf("%w; not all results of map %s were written; %s", failed, h.ID, again)
	}
	if err != nil {
		return false, a.explain(err)
	}
	if err := a.deliver(ctx, conn, end, out, f, streamed); err != nil {
		if errors.Is(err, app.ErrInterrupted) {
			a.Console.Say("map %s is finished, but not all its results were written; %s", h.ID, again)
			return false, app.Exit(app.ExitInterrupted)
		}
		return false, fmt.Errorf("%w; map %s is finished, but not all its results were written; %s", err, h.ID, again)
	}
	return true, end.exit()
}

// errRows is the cause of a context that a failed write of results ended.
var errRows = errors.New("the results could not be written")

// stream writes the results of a running map as they come. written waits for the last of them. A write that fails, or would because
// nobody reads any more, ends the context.
func (a *program) stream(ctx context.Context, h *starter.Handle, out files.Output, unordered bool) (
	within context.Context, written func() (*cause.Groups, error)) {
	within, stop := context.WithCancelCause(ctx)
	a.watchReader(within, stop)
	done := make(chan struct{})
	var causes cause.Groups
	var err error
	go func() {
		defer close(done)
		causes, err = out.Write(within, h.FollowLines(within, starter.FollowOptions{Unordered: unordered}))
		// A map that does not complete says so itself.
		if err != nil && !errors.As(err, new(*starter.MapFailed)) && !errors.As(err, new(*starter.Canceled)) && !errors.As(err, new(*starter.Terminated)) {
			stop(errRows)
		}
	}()
	return within, func() (*cause.Groups, error) { <-done; stop(nil); return &causes, err }
}

// watchReader ends a context when nobody reads standard output any more. A write fails then, and does not end this program in the middle
// of its items.
func (a *program) watchReader(ctx context.Context, stop context.CancelCauseFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if pipe, ok := a.Stdout.(*os.File); ok {
		go func() {
			if files.Abandoned(ctx, pipe) {
				stop(fmt.Errorf("write the results: %w", syscall.EPIPE))
			}
		}()
	}
}

// deliver writes the results of a map that has ended, or the one value that was asked for, and says what it came to. Streamed are the
// causes of results that were written already.
func (a *program) deliver(ctx context.Context, conn *app.Connection, end *report, out files.Output, f *mapFlags, streamed *cause.Groups) error {
	switch {
	case f.valueOnly() && end.ReduceFault != nil:
		a.Console.Say("gpumux: reduce: %s", screen.OneLine(end.ReduceFault.Error(), 300))
		return nil
	case f.valueOnly():
		_, err := fmt.Fprintln(a.Stdout, cmp.Or(end.ReducedOutput, string(text.Unescaped(end.Reduced))))
		return err
	}
	out, err := out.Named(end.ID)
	if err != nil {
		return err
	}
	if streamed == nil {
		causes, err := out.Write(ctx, conn.Lines(ctx, end.Summary))
		if err != nil {
			return err
		}
		streamed = &causes
	}
	end.Files, end.Keepers, end.Folder = out.Kept.Files, out.Kept.Items, out.Kept.Folder
	end.File, end.printed, end.Causes = out.Path, out.Path == "", streamed.Most()
	return a.tell(end, f.json, "the same command with --retry")
}

// valueOnly reports whether a map is only asked for what --reduce makes of it: with --quiet and no place for the results.
func (f *mapFlags) valueOnly() bool { return f.quiet && f.reduce != "" && f.out == "" && !f.json }
