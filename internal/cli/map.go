package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/files"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func mapCommand(a *app.App) *cobra.Command {
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
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(c, args); err != nil {
			return err
		}
		r, err := newMapRun(a, f)
		if err != nil {
			return err
		}
		return r.run(c.Context())
	}
	return c
}

type mapRun struct {
	*app.App
	*mapFlags
	m    starter.Map
	out  files.Output
	conn *app.Connection
	h    *starter.Handle
}

// newMapRun finds out where the results go. The flags are good.
func newMapRun(a *app.App, f *mapFlags) (*mapRun, error) {
	a.Console.Quiet = f.quiet
	r := &mapRun{App: a, mapFlags: f, m: starter.Map{ID: f.id, Retry: f.retry, Input: f.input}}
	var err error
	r.out, err = files.Choose(f.out, a.Console.Above(a.Stdout), f.json, screen.IsTerminal(a.Stdout))
	r.out.Note, r.out.Exact = a.Console.Note, f.exact
	return r, err
}

func (r *mapRun) run(ctx context.Context) error {
	var here *local.Task
	if r.local {
		if err := r.NeedLocal("--local"); err != nil {
			return err
		}
		var err error
		if here, err = local.FindTask(r.input.Task, r.task); err != nil {
			return err
		}
	}
	defer files.Remove(&r.m)
	afar := !r.local && r.overURL()
	if !afar {
		if err := takeItems(ctx, r.App, r.mapFlags, &r.m); err != nil {
			return err
		}
		if files.IsOneList(&r.m) {
			r.Console.Note("%s holds one list, so that is the one item; for an item of each of its values: jq -c '.[]'", r.m.Label)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if r.local {
		return r.runHere(ctx, here)
	}
	conn, err := r.ConnectWithStore(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	r.conn = conn
	if afar {
		if err := itemsOf(ctx, r.App, conn, r.mapFlags, &r.m); err != nil {
			return err
		}
	}
	return r.runThere(ctx)
}

func (r *mapRun) runThere(ctx context.Context) (err error) {
	if err := r.place(ctx, r.conn.Starter, &r.m.Input); err != nil {
		return err
	}
	if r.h, err = r.conn.Start(ctx, r.m); err != nil {
		return err
	}
	r.tellOptions(ctx)
	if r.detach {
		r.Console.Note("%s", began(r.h))
		return detach(r.App, r.h)
	}
	_, err = r.finish(ctx, r.m.Input.Rungs())
	return err
}

// runHere runs the map in a server and a worker of its own. The map is over when its
// results are delivered; until then the same command goes on with it.
func (r *mapRun) runHere(ctx context.Context, task *local.Task) error {
	if slices.ContainsFunc(task.Files(), func(file string) bool { return sameFile(file, r.mapFlags.out) }) {
		return app.Usage("--out %s is the task's own file; name another for the results", r.mapFlags.out)
	}
	o := r.LocalOptions(true)
	o.Data, o.Task, o.Pools, o.Headless, o.Last = r.data, task, poolsHere(r.App, r.taskFlags), !r.Console.Redraws(), true
	s, h, err := local.Map(ctx, o, &r.m)
	if err != nil {
		return inFlags(err)
	}
	defer s.Close(r.Hard)
	r.h, r.conn = h, app.ConnectionOf(s)
	r.tellOptions(ctx)
	r.conn.ComeBack = "the same command writes them (its state is in " + s.Data + ")"
	r.tellEntry()
	r.conn.UI = "" // the page goes away with the server
	delivered, err := r.finish(s.Context(), nil)
	if errors.Is(err, app.ErrInterrupted) {
		r.Console.Say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.Data)
		if r.data == "" && h.Output != "" {
			r.Console.Say("  the results so far: `gpumux results %s --partial`", h.ID)
		}
		return app.Exit(app.ExitInterrupted)
	}
	s.Ended(delivered, err)
	if delivered && r.data == "" && r.id != "" && h.Entry == starter.Started {
		r.Console.Note("  state      %s (until you delete it)", s.Data)
	}
	return err
}

func (r *mapRun) tellEntry() {
	switch h := r.h; h.Entry {
	case starter.Continued, starter.Attached:
		r.Console.Note("going on with map %s", h.ID)
		if h.Edition != "" && r.m.Edition != "" && h.Edition != r.m.Edition {
			r.Console.Say("%s has changed since map %s was started; the results that it has already stay as they are", r.m.Input.Task, h.ID)
		}
	case starter.Found:
		r.Console.Note("map %s is finished; these are its results", h.ID)
	}
	if page := r.conn.Link(r.h.ID); page != "" && r.h.Entry != starter.Found {
		r.Console.Note("web UI while it runs: %s", page)
	}
}

// nothingToRetry is said of a map that --retry found.
const nothingToRetry = "map %s: every item succeeded, so there is nothing to retry"

// tellOptions says which options have no effect on a map that was found.
func (r *mapRun) tellOptions(ctx context.Context) {
	if r.h.Entry == starter.Started {
		return
	}
	if r.retry && r.h.Entry == starter.Found {
		r.Console.Note(nothingToRetry, r.h.ID)
	}
	asked := r.m.Input
	if len(r.input.Ladder) == 0 {
		asked.Ladder = nil // nobody asked for these pools
	}
	if own, err := r.h.Input(ctx); err == nil {
		if other := otherThan(own, asked); len(other) > 0 {
			r.Console.Say("map %s was started before, and its own options stand; here %s says otherwise and changes nothing",
				r.h.ID, strings.Join(other, ", "))
		}
	}
}

// otherThan lists the flags that ask for something else than a map was started with.
func otherThan(own, here gpumux.MapInput) (other []string) {
	if own.Ladder = own.Rungs(); here.Attempts == 1 {
		here.Attempts = 0 // the default
	}
	had, asked := reflect.ValueOf(own), reflect.ValueOf(here)
	for i := range asked.NumField() {
		name, _, _ := strings.Cut(asked.Type().Field(i).Tag.Get("json"), ",")
		flag := strings.TrimSuffix(flagOf[name], ":")
		if flag != "" && !asked.Field(i).IsZero() && !reflect.DeepEqual(had.Field(i).Interface(), asked.Field(i).Interface()) {
			other = append(other, flag)
		}
	}
	return other
}

// finish follows the map to its end, writes the results and says what it came to. It
// reports whether the results were written.
func (r *mapRun) finish(ctx context.Context, ladder []string) (delivered bool, err error) {
	h := r.h
	if h.Entry == starter.Attached && !r.local {
		r.Console.Note("map %s runs already; following it", h.ID)
	}
	r.out.Kept = &files.Kept{Folder: r.files, Open: filesOf(r.conn.Starter, h.Output)}
	if r.local {
		r.out.Kept.Folder = cmp.Or(r.files, h.ID+".files") // where they lie is gone when the command has ended
	}
	again := cmp.Or(r.conn.ComeBack, "`gpumux results "+h.ID+"` fetches them")
	within, written := ctx, func() (*starter.Causes, error) { return nil, nil }
	if r.out.Path == "" && !r.valueOnly() && h.Running() {
		within, written = r.stream(ctx)
	}
	end, err := follow(within, r.App, r.conn, h, ladder)
	streamed, failed := written()
	if errors.Is(err, app.ErrInterrupted) && !r.local {
		return false, detached(r.App, h)
	}
	if errors.Is(failed, syscall.EPIPE) {
		r.Console.Note("nobody reads the results of map %s any more; %s", h.ID, again)
		return false, app.Exit(app.ExitInterrupted)
	}
	if failed != nil && ctx.Err() == nil && (err == nil || errors.Is(err, errRows)) {
		return false, fmt.Errorf("%w; not all results of map %s were written; %s", failed, h.ID, again)
	}
	if err != nil {
		return false, explain(r.App, err)
	}
	if err := r.deliver(ctx, end, streamed); err != nil {
		if errors.Is(err, app.ErrInterrupted) {
			r.Console.Say("map %s is finished, but not all its results were written; %s", h.ID, again)
			return false, app.Exit(app.ExitInterrupted)
		}
		return false, fmt.Errorf("%w; map %s is finished, but not all its results were written; %s", err, h.ID, again)
	}
	return true, end.exit()
}

// errRows is the cause of a context that a failed write of results ended.
var errRows = errors.New("the results could not be written")

// stream writes the results of the running map as they come. written waits for the last
// of them. A write that fails, or would because nobody reads any more, ends the context.
func (r *mapRun) stream(ctx context.Context) (within context.Context, written func() (*starter.Causes, error)) {
	within, stop := context.WithCancelCause(ctx)
	watchReader(within, r.Stdout, stop)
	done := make(chan struct{})
	var causes starter.Causes
	var err error
	go func() {
		defer close(done)
		causes, err = r.out.Write(within, r.h.Lines(within, starter.ResultOptions{Unordered: r.unordered}))
		if err != nil && !errors.As(err, new(*starter.EndedError)) { // such a map says so itself
			stop(errRows)
		}
	}()
	return within, func() (*starter.Causes, error) { <-done; stop(nil); return &causes, err }
}

// watchReader ends a context when nobody reads a stream any more. A write fails then, and
// does not end this program in the middle of its items.
func watchReader(ctx context.Context, stream io.Writer, stop context.CancelCauseFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if pipe, ok := stream.(*os.File); ok {
		go func() {
			if files.Abandoned(ctx, pipe) {
				stop(fmt.Errorf("write the results: %w", syscall.EPIPE))
			}
		}()
	}
}

// deliver writes the results, or the one value that was asked for, and tells what the map
// came to. Streamed are the causes in results that were written already.
func (r *mapRun) deliver(ctx context.Context, end *report, streamed *starter.Causes) error {
	switch {
	case r.valueOnly() && end.ReduceFault != nil:
		r.Console.Say("gpumux: reduce: %s", screen.OneLine(end.ReduceFault.Error(), 300))
		return nil
	case r.valueOnly():
		_, err := fmt.Fprintln(r.Stdout, cmp.Or(end.ReducedOutput, string(text.Unescaped(end.Reduced))))
		return err
	}
	out, err := r.out.Named(end.ID)
	if err != nil {
		return err
	}
	if streamed == nil {
		causes, err := out.Write(ctx, r.conn.Lines(ctx, end.Summary))
		if err != nil {
			return err
		}
		streamed = &causes
	}
	end.Files, end.Keepers, end.Folder = out.Kept.Files, out.Kept.Items, out.Kept.Folder
	end.File, end.printed, end.Causes = out.Path, out.Path == "", streamed.Sorted()
	return tell(r.App, end, r.json, "the same command with --retry")
}
