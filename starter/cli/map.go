package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

func (a *app) mapCommand() *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "map TASK --in FILE",
		Short: "Map a task over items; given again it goes on where it was",
		Long: `Map a task over items and write one result per item, in order: {"index":0,"value":…} or, for an item that
failed, {"index":7,"fault":{…}}.

TASK is a name that the workers know. With --local it is a function here, file.py:function or
module:function, or a command after --, which gets an item on its standard input and prints the result.

A map without --id is named by its task, input and options: given again while it runs you watch it, given
again after it was stopped it goes on with the items that have no result, given again when it was finished
it runs anew. With --id it goes on, or shows what it came to. Ctrl-C leaves the map running on the server;
with --local it stops the map, and the same command goes on with it.`,
		Example: `  gpumux map embed.py:embed --in items.jsonl --local
  gpumux map embed --in items.csv --out vectors.jsonl --pool gpu,cpu
  gpumux map resize --glob 'images/*.png' --detach
  gpumux map words --in s3://bucket/texts.jsonl.gz --reduce sum
  gpumux map --range 0:1000 --local -- ./simulate --json`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(c)
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = ran(func(c *cobra.Command, args []string) error { return a.runMap(c, args, f) })
	return c
}

// runMap checks everything that can be checked here, then starts and follows the map.
func (a *app) runMap(c *cobra.Command, args []string, f *mapFlags) error {
	task, command, err := f.check(c, args)
	if err != nil {
		return err
	}
	a.console.quiet = f.quiet
	out, err := a.chooseOutput(f.out, f.json)
	if err != nil {
		return err
	}
	if f.local {
		if err := a.needLocal("--local"); err != nil {
			return err
		}
	}
	m := starter.Map{ID: f.id, Retry: f.retry, Input: gpumux.MapInput{
		Task: task, Ladder: f.pools, Mode: gpumux.Mode(f.mode), Timeout: gpumux.Duration(f.timeout), Attempts: f.attempts,
		FailFast: f.failFast, Reduce: f.reduce, Chunk: f.chunk, Window: f.window, Priority: f.priority, FairnessKey: f.fairness,
	}}
	var local localTask
	if f.local {
		if local, err = parseLocalTask(task, command, f.localFlags, m.Input.Mode); err != nil {
			return err
		}
		m.Input.Task, m.Scope = local.name, local.scope
		if err := local.reduceWith(&m.Input.Reduce, f.localFlags); err != nil {
			return err
		}
	}
	ctx := c.Context()
	if !f.local && strings.Contains(f.in, "://") {
		return a.mapURL(ctx, f, m, out)
	}
	over, err := a.readItems(ctx, f.in, f.rng, f.glob)
	if err != nil {
		return err
	}
	defer over.remove()
	over.put(&m)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if f.local {
		return a.mapLocally(ctx, f, m, local, out)
	}
	conn, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	return a.mapThere(ctx, conn, f, m, out)
}

// mapURL runs a map over a URL: the workers read it where it lies when it is in their store, else it is read here.
func (a *app) mapURL(ctx context.Context, f *mapFlags, m starter.Map, out output) error {
	conn, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	over := items{source: f.in, label: f.in}
	if !conn.Holds(ctx, f.in) {
		if over, err = a.readItems(ctx, f.in, "", ""); err != nil {
			return err
		}
	}
	defer over.remove()
	over.put(&m)
	return a.mapThere(ctx, conn, f, m, out)
}

// mapThere runs the map on the workers of a server.
func (a *app) mapThere(ctx context.Context, conn *connection, f *mapFlags, m starter.Map, out output) error {
	if f.noWait {
		if err := served(ctx, conn.Starter, m.Input.Rungs()); err != nil {
			return err
		}
	}
	h, err := conn.Start(ctx, m)
	if err != nil {
		return err
	}
	if f.detach {
		a.console.note("%s", began(h))
		a.comeBack(h.ID)
		_, err := fmt.Fprintln(a.Stdout, h.ID)
		return err
	}
	return a.finish(ctx, conn, h, m.Input.Rungs(), out, f)
}

// mapLocally runs the map in a server and a worker of its own.
func (a *app) mapLocally(ctx context.Context, f *mapFlags, m starter.Map, local localTask, out output) error {
	haveGPU, _ := hasGPU()
	pools, err := localPools(f.pools, f.localFlags, m.Input.Mode, haveGPU)
	if err != nil {
		return err
	}
	m.Input.Ladder = poolNames(pools)
	if m.ID == "" {
		items := ""
		if m.Spooled != nil {
			items = m.Spooled.Hash
		}
		m.ID = starter.Identify(m.Input, m.Scope, items)
	}
	data := f.data
	if data == "" {
		if data, err = stateFolder("local", m.ID); err != nil {
			return err
		}
	}
	s, err := a.open(ctx, sessionOptions{
		data: data, headless: !a.console.terminal(), pools: pools, dir: local.dir,
		tasks: local.tasks(), stopTimeout: time.Second, calm: true,
	})
	if err != nil {
		return err
	}
	whole := false
	defer func() {
		s.close()
		if whole && f.data == "" {
			s.remove()
		}
	}()
	if err := s.alone(ctx, m.ID); err != nil {
		return err
	}
	ctx, err = s.serve(ctx)
	if err != nil {
		return err
	}
	if f.id == "" {
		m.ID = "" // so that a finished map runs anew
	}
	h, err := s.Start(ctx, m)
	if err != nil {
		return err
	}
	if h.Entry == starter.Continued || h.Entry == starter.Attached {
		a.console.note("going on with map %s", h.ID)
	}
	if page := s.link(h.ID); page != "" {
		a.console.note("web UI while it runs: %s", page)
	}
	s.ui = "" // the page goes away with the server
	err = a.finish(ctx, &s.connection, h, nil, out, f)
	whole = err == nil
	if errors.Is(err, errInterrupted) {
		a.console.say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.data)
		return exitError(ExitInterrupted)
	}
	return err
}

// alone makes sure that the data folder holds no other unfinished map, which this worker would fail for want of its task.
func (s *session) alone(ctx context.Context, id string) error {
	maps, err := s.List(ctx, starter.ListOptions{Running: true})
	if err != nil {
		return unavailableError{err}
	}
	for _, m := range maps {
		if m.ID != id {
			return usage("--data %s holds the unfinished map %s of task %s; give that map's command again first, or another --data",
				s.data, m.ID, m.Task)
		}
	}
	return nil
}

// finish follows a map to its end, writes the results and says what it came to.
func (a *app) finish(ctx context.Context, conn *connection, h *starter.Handle, ladder []string, out output, f *mapFlags) error {
	if h.Entry == starter.Attached && !f.local {
		a.console.note("map %s runs already; following it", h.ID)
	}
	end, err := a.follow(ctx, conn, h, ladder)
	if err != nil {
		if errors.Is(err, errInterrupted) && !f.local {
			a.console.say("detached; map %s goes on", h.ID)
			a.comeBack(h.ID)
			return exitError(ExitInterrupted)
		}
		return a.explain(err)
	}
	if out, err = out.named(h.ID); err != nil {
		return err
	}
	faults, err := out.write(ctx, conn.Starter, end.Summary, filter{})
	if err != nil {
		return err
	}
	end.File, end.printed, end.faults = out.path, out.path == "", faults
	if f.json {
		if err := end.printJSON(a.Stdout); err != nil {
			return err
		}
	} else if !f.quiet {
		end.print(a.console)
		if end.Failed > 0 {
			a.console.say("  to run the failed items again: the same command with --retry")
		}
	}
	return end.exit()
}
