package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func mapCommand(a *app) *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "map TASK... --in FILE",
		Short: "Map a task over items; given again it goes on where it was",
		Long: `Map a task over items and write one result per item, in order: {"index":0,"value":…} or, for an item that
failed, {"index":7,"fault":{…}}.

TASK is a name that the workers know. With --local it is a function here, file.py:function,
module:function or file.R:function, or a command after --, which gets an item on its standard input, and in
the place of {} in its words, and prints the result.

Several TASKs are stages, which work at the same time: the value of an item in one is its input in the next,
and the results are those of the last. An item that fails does not go on. TASK@POOL, or TASK@POOL,POOL, names
the pools of a stage. With --local the stages take the pools that --slots names in turn; a pool named cpu or
cpu-… is on the CPU. After a change of a later stage's code a map that was stopped keeps what the stages
before gave; --keep keeps it of a finished one.

A map without --id is named by its task, input and options. The same command given again watches a map that
runs, goes on with the items without a result of one that was stopped, and runs a finished one anew; with --id
it shows what a finished one came to. With --retry it runs only what failed, with the options given now.
Ctrl-C leaves the map running on the server; with --local it stops the map. A map with --local is finished
when its results are written, so a full disk costs no item a second run. Until then they gather beside
--out, in .gpumux- and its ID.

--option sets what few maps need, by the names that the input of the workflow has:

  chunk           items per chunk (default: learnt)
  window          chunks in flight (default: learnt)
  priority        1 (first) to 5 (last) (default 3)
  fairnessKey     maps of one key share the pools with those of other keys (default: each map has its own)
  fairnessWeight  share of the key beside others, 0.001 to 1000 (default 1)
  mapTimeout      longest time of the whole map, such as 2h; what has finished is kept (default: none)
  poolTimeout     longest time without a worker that has a healthy device (default: the map waits)
  edition         any: new code of the task is taken as it comes (default: an edit ends the map)

Changed code makes a new map, unless --retry asks for the failed items of the old one: the code is TASK's
file, the modules beside it that it imports, and the files that a command names. Put it back and the old map
goes on.`,
		Example: `  gpumux map embed.py:embed --in items.jsonl --local
  gpumux map embed --in items.csv --out vectors.jsonl --pool gpu,cpu
  gpumux map load.py:decode embed.py:embed --glob 'photos/*' --local --slots cpu=6,gpu=2
  gpumux map embed.py:embed --in texts.jsonl --key id --skip 'done/*' --local --out done/2.jsonl
  gpumux map resize --glob 'images/*.png' --detach
  gpumux map words.py:count --in s3://bucket/texts.jsonl.gz --local --out counts.jsonl
  gpumux results embed-3fa92c01d4e5 --values | gpumux map rank --in - --out ranks.parquet
  gpumux map --range 0:1000 --local -- ./simulate --json
  gpumux map --in names.txt --lines --local --output text -- convert {} -resize 50% png:{}.png`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(c)
	a.storeFlags(c)
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
	a    *app
	f    *mapFlags
	m    starter.Map
	out  output
	conn *connection
	h    *starter.Handle
	// comeBack says how to get the results later. Default: with `gpumux results`.
	comeBack string
}

// newMapRun decides where the results go. The flags have been checked.
func newMapRun(a *app, f *mapFlags) (*mapRun, error) {
	a.console.Quiet = f.quiet
	r := &mapRun{a: a, f: f, m: starter.Map{ID: f.id, Retry: f.retry, Input: f.input, ArgFile: f.argFile}}
	onScreen := report.IsTerminal(a.Stdout)
	var err error
	r.out, err = chooseOutput(f.out, f.schema, a.Stdout, f.json, onScreen)
	r.out.exact, r.out.openAI = f.exact, f.openAI
	if err == nil && r.out.path != "" && !f.detach && slices.ContainsFunc(f.source.in, func(in string) bool { return takesFile(in, cmp.Or(f.out, "x")) }) {
		err = usage("the results would lie among the files of --in, and be items of the next map; name a file elsewhere with --out")
	}
	if r.out.path == "" && onScreen {
		a.console.NoStatus() // the rows would garble it
	}
	return r, cmp.Or(err, r.out.suits(f.out))
}

func (r *mapRun) run(ctx context.Context) (err error) {
	defer func() { _ = r.m.Spooled.Remove() }()
	if r.f.local {
		return r.runHere(ctx)
	}
	if r.conn, err = connectWithItems(ctx, r.a, r.f, &r.m); err != nil {
		return err
	}
	defer r.conn.close()
	steps := r.m.Input.Steps()
	if err := r.f.served(ctx, r.conn, steps); err != nil {
		return err
	}
	if r.h, err = r.conn.Start(ctx, r.m); err != nil {
		return err
	}
	return r.follow(ctx, steps)
}

// follow stays with a map on a server, unless --detach leaves it.
func (r *mapRun) follow(ctx context.Context, steps []gpumux.MapInput) error {
	r.tellEntry()
	if r.f.detach {
		comeBack(r.a, r.h.ID, r.f.openAI)
		_, err := fmt.Fprintln(r.a.Stdout, r.h.ID)
		return err
	}
	_, err := r.finish(ctx, steps)
	return err
}

// runHere runs the map in a server and a worker of its own. The map is over when its
// results are delivered; until then the same command goes on with it.
func (r *mapRun) runHere(ctx context.Context) error {
	f := r.f
	if err := r.a.needLocal("--local"); err != nil {
		return err
	}
	o, err := f.optionsHere(ctx, r.a, &r.m.Input)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(o.Task.Files(), func(file string) bool { return sameFile(file, f.out) }) {
		return usage("--out %s is the task's own file; name another for the results", f.out)
	}
	if err := readItems(ctx, r.a, f, &r.m); err != nil {
		return err
	}
	o.Headless, o.Brief, o.Out = !r.a.console.Redraws(), true, r.out.file()
	s, h, err := local.Map(ctx, o, &r.m)
	if err != nil {
		return inFlags(err)
	}
	defer s.Close(r.a.hard)
	r.h, r.conn = h, connectionOf(s)
	r.comeBack = "the same command writes them (its state is in " + s.Data + ")"
	r.tellEntry()
	if f.listen != "" {
		r.a.console.Note("workers of other hosts: gpumux worker -f %s", shellLine([]string{s.WorkerFile}))
	}
	if page := r.conn.link(h.ID); page != "" && h.Entry != starter.EntryFound {
		r.a.console.Note("web UI while it runs: %s", page)
	}
	r.conn.ui = "" // the page goes away with the server
	delivered, err := r.finish(s.Context(), nil)
	if errors.Is(err, errInterrupted) {
		r.a.console.Say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.Data)
		if h.Output != "" {
			r.a.console.Say("  the results so far: `gpumux results %s --partial`", h.ID)
		}
		return exitInterrupted
	}
	s.Ended(delivered, err)
	if delivered && (f.id != "" || s.Keeps) && h.Entry == starter.EntryStarted {
		r.a.console.Note("  state      %s (until you delete it)", s.Data)
	}
	return err
}

// tellEntry says which run of the map this is, where it is not the first.
func (r *mapRun) tellEntry() {
	note, h := r.a.console.Note, r.h
	switch h.Entry {
	case starter.EntryStarted:
		if r.f.detach {
			note("map %s started", h.ID)
		}
	case starter.EntryChanged:
		r.tellChanged()
	case starter.EntryRetried:
		note("map %s runs its failed items again", h.ID)
	case starter.EntryFound:
		if r.m.Retry {
			note("map %s: every item succeeded, so there is nothing to retry", h.ID)
		} else {
			note("map %s is finished; these are its results", h.ID)
			r.tellEdition()
		}
	case starter.EntryAttached, starter.EntryContinued:
		if h.Entry == starter.EntryAttached && !r.f.local {
			note("map %s runs already, with the options that it was started with", h.ID)
		} else {
			note("going on with map %s and the options that it was started with", h.ID)
		}
		r.tellEdition()
	}
}

func (r *mapRun) tellEdition() {
	if h := r.h; h.Edition != "" && r.m.Edition != "" && h.Edition != r.m.Edition {
		r.a.console.Say("note: the files of task %s have changed since map %s was started; the results that it has already stay as they are", r.m.Input.Name(), h.ID)
	}
}

// finish follows the map to its end, writes the results and says what it came to. It
// reports whether the results were written.
func (r *mapRun) finish(ctx context.Context, steps []gpumux.MapInput) (delivered bool, err error) {
	h := r.h
	kept := keptFiles{folder: r.f.files, from: h}
	if r.f.local {
		kept.folder = cmp.Or(r.f.files, h.ID+".files") // where they lie is gone when the command has ended
	}
	r.out.kept = new(kept)
	again := cmp.Or(r.comeBack, "`gpumux results "+h.ID+formOf[r.f.openAI]+"` fetches them")
	within, written := ctx, func() (*starter.Causes, error) { return nil, nil }
	bar := report.NewBar(r.a.console)
	if out, now := r.out.while(h.ID); now && (r.f.local || out.path == "") && h.Running() {
		out.count = &bar.Written
		within, written = r.stream(ctx, out)
	}
	end, err := follow(within, r.a, r.conn, h, steps, r.out.tokens != nil, bar)
	streamed, failed := written()
	if failed != nil && r.out.path != "" { // a file can be written once more
		streamed, failed, r.out.kept, r.out.tokens = nil, nil, &kept, nil
	}
	if errors.Is(err, errInterrupted) && !r.f.local {
		return false, detached(r.a, h, r.f.openAI)
	}
	if errors.Is(failed, syscall.EPIPE) {
		r.a.console.Note("nobody reads the results of map %s any more; %s", h.ID, again)
		return false, exitInterrupted
	}
	if failed != nil && ctx.Err() == nil && (err == nil || errors.Is(err, errRows)) {
		return false, fmt.Errorf("%w; not all results of map %s were written; %s", failed, h.ID, again)
	}
	if err != nil {
		return false, explain(r.a, err)
	}
	if err := r.deliver(ctx, end, streamed); err != nil {
		if errors.Is(err, errInterrupted) {
			r.a.console.Say("map %s is finished, but not all its results were written; %s", h.ID, again)
			return false, exitInterrupted
		}
		return false, fmt.Errorf("%w; map %s is finished, and keeps its results: %s", err, h.ID, again)
	}
	return true, end.exit()
}

// errRows is the cause of a context that a failed write of results ended.
var errRows = errors.New("the results could not be written")

// stream writes the results of the running map as they come. written waits for the last
// of them. The context ends if a write to a stream fails, or if its reader has gone.
func (r *mapRun) stream(ctx context.Context, out output) (within context.Context, written func() (*starter.Causes, error)) {
	within, stop := context.WithCancelCause(ctx)
	if out.path == "" {
		watchReader(within, r.a.Stdout, stop)
	}
	done := make(chan struct{})
	var causes starter.Causes
	var err error
	go func() {
		defer close(done)
		causes, err = out.write(within, r.h.Lines(within, starter.ReadOptions{Unordered: r.f.unordered, Arrays: true}))
		switch {
		case err == nil, within.Err() != nil, errors.As(err, new(*starter.EndedError)): // such a map says so itself
		case out.path == "":
			stop(errRows)
		default:
			r.a.console.Say("%v; the map goes on, and its results are written again when it ends", err)
		}
	}()
	return within, func() (*starter.Causes, error) { <-done; stop(nil); return &causes, err }
}

// deliver writes the results and tells what the map came to. Streamed are the causes in
// results that were written already.
func (r *mapRun) deliver(ctx context.Context, end *ending, streamed *starter.Causes) error {
	out, err := r.out.named(end.ID)
	if err != nil {
		return err
	}
	if streamed == nil {
		causes, err := out.write(ctx, r.conn.Completed(end.Summary).Lines(ctx, starter.ReadOptions{Arrays: true}))
		if err != nil {
			return err
		}
		streamed = &causes
	}
	end.Files, end.Keepers, end.Folder = out.kept.files, out.kept.items, out.kept.folder
	if out.tokens != nil {
		out.tokens.addTo(end, r.h.Entry)
	}
	end.File, end.printed, end.Causes, end.Unfit = out.path, out.path == "", streamed.Sorted(), out.misfits()
	again := "the same command" + text.When(!r.f.retry, " with --retry")
	end.partly = r.h.Entry == starter.EntryRetried
	return cmp.Or(printReport(r.a, end, r.f.json, again), *out.unfit)
}

func retryCommand(a *app) *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "retry ID",
		Short: "Run the failed items of a finished map again and merge the results",
		Long: `Run the failed items of a finished map again. The results of both runs end up in one file, under the same
ID. Of a map that was cancelled or failed, the items without a result run. Pools, mode, timeout and attempts
are the map's where they are not given.`,
		Example: "  gpumux retry embed-3fa92c01d4e5\n  gpumux retry embed-3fa92c01d4e5 --pool big --timeout 10m",
		Args:    a.idOnServer,
	}
	flags := c.Flags()
	f.registerPool(flags)
	f.registerMode(flags)
	f.registerRun(flags)
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runRetry(a, c, args[0], f) }
	return c
}

func runRetry(a *app, c *cobra.Command, id string, f *mapFlags) error {
	var m mistakes
	f.checkInput(&m, c)
	f.checkFiles(&m)
	if err := m.err(); err != nil {
		return err
	}
	f.retry = true
	r, err := newMapRun(a, f)
	if err != nil {
		return err
	}
	ctx := c.Context()
	if r.conn, err = a.connectWithStore(ctx); err != nil {
		return err
	}
	defer r.conn.close()
	if len(f.input.Ladder) > 0 {
		if err := f.served(ctx, r.conn, f.input.Steps()); err != nil {
			return err
		}
	}
	r.h, err = r.conn.Retry(ctx, id, func(in *gpumux.MapInput) {
		f.overrule(c, &in.Ladder, &in.Mode, &in.Timeout, &in.Attempts, &in.RetryOn)
		for i := range in.Stages {
			s := &in.Stages[i]
			f.overrule(c, &s.Ladder, &s.Mode, &s.Timeout, &s.Attempts, &s.RetryOn)
		}
	})
	if err != nil {
		return err
	}
	in, err := r.h.Input(ctx)
	if err != nil {
		return err
	}
	return r.follow(ctx, in.Steps())
}

// overrule sets the options of a map or a stage that are given to a retry.
func (f *mapFlags) overrule(c *cobra.Command, ladder *[]string, mode *gpumux.Mode, timeout *gpumux.Duration, attempts *int, retryOn *[]string) {
	if len(f.input.Ladder) > 0 {
		*ladder = f.input.Ladder
	}
	*mode, *timeout = cmp.Or(f.input.Mode, *mode), cmp.Or(f.input.Timeout, *timeout)
	if c.Flags().Changed("attempts") {
		*attempts = f.input.Attempts
	}
	if len(f.input.RetryOn) > 0 {
		*retryOn = f.input.RetryOn
	}
}
