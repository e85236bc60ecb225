package cli

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/internal/show"
	"github.com/gpumux/gpumux/starter"
)

// sofar is what a map has come to, on a server or on this machine.
type sofar struct {
	id, status string
	// items is how many it has, -1 where that is not known.
	items int64
	lines iter.Seq2[[]byte, error]
	// follow are the lines, and those that come until the map ends, in any order.
	follow iter.Seq2[[]byte, error]
	// file opens a file that an item keeps.
	file func(ctx context.Context, index int64, name string) (io.ReadCloser, error)
	// whole says that every item has a result.
	whole bool
	// handle is nil for a map of this machine. Summary is of one that completed there, ended
	// says why one did not.
	handle  *starter.Handle
	summary *gpumux.Summary
	ended   *starter.EndedError
	close   func()
}

func (s *sofar) running() bool { return s.status == string(starter.Running) }

// stateHere is what a command with --local left of a map, unless a server is named.
func stateHere(a *app.App, id string) (state local.State, here bool) {
	if a.Address != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

func soFarHere(ctx context.Context, a *app.App, state local.State) (*sofar, error) {
	_, keys, err := a.ReadKeys()
	if err != nil {
		return nil, err
	}
	st, err := state.Store(ctx, keys)
	if err != nil {
		return nil, err
	}
	from := &starter.Starter{Store: st, Arrays: true}
	s := &sofar{id: state.ID, status: state.State, items: -1, file: filesOf(from, state.Output), close: func() { _ = st.Close() }}
	if s.whole, err = st.Objects.Exists(ctx, state.Output); err == nil && s.whole {
		s.lines = from.Lines(ctx, gpumux.Summary{Output: state.Output})
		s.follow = s.lines
		return s, nil
	}
	s.lines = from.StoredIn(ctx, st, state.Output, nil)
	s.follow = from.StoredIn(ctx, st, state.Output, func() bool {
		now, err := local.StateOf(state.ID)
		return err == nil && now.State == string(starter.Running)
	})
	return s, nil
}

func soFar(ctx context.Context, a *app.App, id string) (*sofar, error) {
	if state, here := stateHere(a, id); here {
		return soFarHere(ctx, a, state)
	}
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return nil, err
	}
	s, err := soFarThere(ctx, conn, id)
	if err != nil {
		conn.Close()
	}
	return s, err
}

func soFarThere(ctx context.Context, conn *app.Connection, id string) (*sofar, error) {
	h, err := conn.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &sofar{id: h.ID, status: string(starter.Running), items: h.Items, lines: h.Stored(ctx), handle: h, close: conn.Close}
	s.follow, s.file = h.FollowLines(ctx, starter.FollowOptions{Unordered: true}), filesOf(conn.Starter, h.Output)
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	switch {
	case err == nil:
		s.status, s.items, s.whole, s.summary = string(starter.Completed), summary.Items, true, &summary
		s.lines, s.file = conn.Lines(ctx, summary), filesOf(conn.Starter, summary.Output)
		s.follow = s.lines
	case errors.As(err, &s.ended):
		s.status = string(s.ended.Status)
	default:
		return nil, err
	}
	return s, nil
}

func logsCommand(a *app.App) *cobra.Command {
	item, follow := int64(0), false
	c := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what items of a map printed",
		Long: `Show what items of a map printed or logged: that of one item, or of all that printed something, each line
behind the index of its item. Output comes with the result of its item; --follow waits for the results that
are still to come, and with --item shows about once a second what an item prints while it runs. Of a process
that died it is the last that it printed.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux logs embed-3fa92c01d4e5 --item 7\n  gpumux logs embed-3fa92c01d4e5 --item 7 --follow\n" +
			"  gpumux logs embed-3fa92c01d4e5 | grep -i warning",
		Args: app.OneID,
	}
	c.Flags().Int64Var(&item, "item", 0, "only this item, by its index from 0")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "wait for what comes, until the item, or without --item the map, has ended")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		one := c.Flags().Changed("item")
		if item < 0 {
			return app.Usage("--item %d: items are counted from 0", item)
		}
		s, err := soFar(c.Context(), a, args[0])
		if err != nil {
			return err
		}
		defer s.close()
		if one {
			return logOf(c.Context(), a, s, item, follow)
		}
		return logAll(a, s, follow)
	}
	return c
}

func logAll(a *app.App, s *sofar, follow bool) error {
	lines := s.lines
	if follow {
		lines = s.follow
	}
	some, err := show.Logs(a.Stdout, lines)
	if err != nil {
		return explain(a, err)
	}
	switch {
	case !some && s.running() && !follow:
		a.Console.Say("no item of map %s has printed anything so far; --follow waits for what comes", s.id)
	case !some:
		a.Console.Say("no item of map %s has printed anything", s.id)
	}
	return nil
}

func logOf(ctx context.Context, a *app.App, s *sofar, item int64, follow bool) error {
	if s.items >= 0 && item >= s.items {
		return app.Usage("--item %d: map %s has %d items, counted from 0", item, s.id, s.items)
	}
	lines := s.lines
	if follow {
		lines = s.follow
	}
	heard := func() string { return "" }
	if follow && s.handle != nil && s.running() {
		heard = hear(ctx, a.Stdout, s.handle, item)
	}
	r, err := show.ResultOf(lines, item)
	written := heard()
	switch {
	case err != nil:
		return explain(a, err)
	case r == nil && s.running() && !follow:
		a.Console.Say("item %d of map %s has no result yet; --follow waits for it", item, s.id)
		return app.Exit(app.ExitFailed)
	case r == nil:
		a.Console.Say("map %s has no result of item %d", s.id, item)
		return app.Exit(app.ExitFailed)
	}
	if r.Fault != nil {
		a.Console.Note("item %d failed: %s", r.Index, screen.OneLine(r.Fault.Error(), 300))
	}
	if show.Printed(*r) == "" {
		a.Console.Note("item %d printed nothing", r.Index)
	}
	_, err = io.WriteString(a.Stdout, show.Behind(show.Printed(*r), written))
	return err
}

// hear writes what an item prints. The returned function ends that and returns what was
// written last.
func hear(ctx context.Context, to io.Writer, h *starter.Handle, item int64) (heard func() string) {
	listening, stop := context.WithCancel(ctx)
	done := make(chan string, 1)
	go func() {
		last := ""
		for text := range h.Listen(listening, item) {
			if _, err := io.WriteString(to, text); err != nil {
				break
			}
			const limit = 1 << 10
			last += text
			last = last[max(0, len(last)-limit):]
		}
		done <- last
	}()
	return func() string { stop(); return <-done }
}

func faultsCommand(a *app.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "faults ID",
		Short: "Show why items of a map failed, grouped by cause",
		Long: `Show why items of a map failed, so far or in all: the failures grouped by cause, how many there are of each
and on which devices, an item that shows it, the end of its traceback, and what to do next. Failures are alike
if they are of one kind and their messages differ only in numbers and names.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux faults embed-3fa92c01d4e5\n  gpumux faults embed-3fa92c01d4e5 --json | jq '.causes[].example.index'",
		Args:    app.OneID,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON, with whole tracebacks")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runFaults(c.Context(), a, args[0], *asJSON) }
	return c
}

func runFaults(ctx context.Context, a *app.App, id string, asJSON bool) error {
	s, err := soFar(ctx, a, id)
	if err != nil {
		return err
	}
	defer s.close()
	faults := show.Faults{ID: s.id, Status: s.status, Items: s.items}
	limit := int64(-1)
	if s.summary != nil {
		limit = s.summary.Failed
	}
	if err := faults.Read(s.lines, limit); err != nil {
		return err
	}
	if s.summary != nil {
		faults.Results = s.summary.Items
	} else if s.whole {
		faults.Items = faults.Results
	}
	if s.handle != nil && s.running() && faults.Results == 0 {
		// A small map keeps its results in its own history until it ends.
		if p, err := s.handle.Progress(ctx); err == nil {
			faults.Add(p.Recent...)
			faults.Results = p.Succeeded + p.Failed
		}
	}
	if s.ended != nil && s.ended.Status == starter.Failed {
		faults.Fault = &s.ended.Fault
	}
	if asJSON {
		return app.PrintJSON(a.Stdout, faults)
	}
	again := ""
	switch {
	case s.summary != nil:
		again = a.Command("retry " + s.id)
	case s.whole:
		again = "the map's command with --retry"
	}
	faults.Print(a.Stdout, again)
	return nil
}
