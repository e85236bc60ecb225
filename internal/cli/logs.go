package cli

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func logsCommand(a *app) *cobra.Command {
	item, follow := int64(0), false
	c := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what items of a map printed",
		Long: `Show what items of a map printed or logged, each line behind the index of its item. Output comes with the
result of its item; --follow waits for results that a server still gives, and with --item shows about once a
second what the item prints while it runs. Of a process that died it is the last that it printed.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux logs embed-3fa92c01d4e5 --item 7\n  gpumux logs embed-3fa92c01d4e5 --item 7 --follow\n" +
			"  gpumux logs embed-3fa92c01d4e5 | grep -i warning",
		Args: oneID,
	}
	c.Flags().Int64Var(&item, "item", 0, "only this item, by its index from 0")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "wait for what comes, until the item, or without --item the map, has ended")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := soFar(c.Context(), a, args[0], starter.ReadOptions{SoFar: !follow, Unordered: true})
		if err != nil {
			return err
		}
		defer s.close()
		if follow && s.handle == nil && s.running() {
			return usage("--follow: map %s runs in a command with --local; `gpumux logs %s` has what finished items printed", s.id, s.id)
		}
		if c.Flags().Changed("item") {
			return logOf(c.Context(), a, s, item, follow)
		}
		return logAll(a, s)
	}
	return c
}

func logAll(a *app, s *sofar) error {
	some, err := report.Logs(a.Stdout, s.lines)
	if err != nil {
		return explain(a, err)
	}
	if !some {
		a.console.Say("map %s, %s: no item has printed anything", s.id, s.status)
	}
	return nil
}

func logOf(ctx context.Context, a *app, s *sofar, item int64, follow bool) error {
	if item < 0 || s.items >= 0 && item >= s.items {
		return usage("--item %d: map %s has %s items, counted from 0", item, s.id, report.Count(s.items))
	}
	stop := func() string { return "" }
	if follow && s.handle != nil && s.running() {
		stop = listen(ctx, a.Stdout, s.handle, item)
	}
	r, err := report.ResultOf(s.lines, item)
	written := stop()
	switch {
	case err != nil:
		return explain(a, err)
	case r == nil && s.running() && !follow:
		a.console.Say("item %d of map %s has no result yet; --follow waits for it", item, s.id)
		return exitCode(exitFailed)
	case r == nil:
		a.console.Say("map %s has no result of item %d", s.id, item)
		return exitCode(exitFailed)
	}
	if r.Fault != nil {
		a.console.Note("item %d failed: %s", r.Index, report.OneLine(r.Fault.Error(), 300))
	}
	if report.Printed(*r) == "" {
		a.console.Note("item %d printed nothing", r.Index)
	}
	_, err = io.WriteString(a.Stdout, report.Rest(report.Printed(*r), written))
	return err
}

// listen writes what an item prints. The returned function stops that and returns the end
// of the written text.
func listen(ctx context.Context, to io.Writer, h *starter.Handle, item int64) (stop func() string) {
	listening, cancel := context.WithCancel(ctx)
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
	return func() string { cancel(); return <-done }
}

// sofar has the results of a map so far, from a server or from this machine.
type sofar struct {
	id, status string
	// items counts the map's items; -1 if unknown.
	items int64
	// lines are its results. Of a map on a server that is followed they go on until it ends.
	lines iter.Seq2[[]byte, error]
	// results has the files that items keep.
	results *starter.Handle
	// whole says that every item has a result.
	whole bool
	// handle is nil for a map of this machine. On a server, ended says why a map did not
	// complete.
	handle *starter.Handle
	ended  *starter.EndedError
	close  func()
}

func (s *sofar) running() bool { return s.status == string(starter.StatusRunning) }

// stateHere finds the state that a command with --local left, unless --address names a
// server.
func stateHere(a *app, id string) (state local.State, here bool) {
	if a.address != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

func soFarHere(ctx context.Context, a *app, state local.State, o starter.ReadOptions) (*sofar, error) {
	keys, err := a.readKeys()
	if err != nil {
		return nil, err
	}
	found, err := state.Results(ctx, keys)
	if err != nil {
		return nil, err
	}
	return &sofar{id: state.ID, status: state.State, items: -1, whole: found.Whole, lines: found.Lines(ctx, o), results: found.Map, close: found.Close}, nil
}

// soFar finds a map. Its lines follow it to its end unless o says SoFar.
func soFar(ctx context.Context, a *app, id string, o starter.ReadOptions) (*sofar, error) {
	o.Arrays = true // what writes them reads them
	if state, here := stateHere(a, id); here {
		return soFarHere(ctx, a, state, o)
	}
	conn, err := a.connectWithStore(ctx)
	if err != nil {
		return nil, err
	}
	s, err := soFarThere(ctx, conn, id, o)
	if err != nil {
		conn.close()
	}
	return s, err
}

func soFarThere(ctx context.Context, conn *connection, id string, o starter.ReadOptions) (*sofar, error) {
	h, err := conn.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &sofar{id: h.ID, status: string(starter.StatusRunning), items: h.Items, lines: h.Lines(ctx, o), handle: h, results: h, close: conn.close}
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	switch {
	case err == nil:
		s.status, s.items, s.whole = string(starter.StatusCompleted), summary.Items, true
		s.results = conn.Completed(summary)
		s.lines = s.results.Lines(ctx, o)
	case errors.As(err, &s.ended):
		s.status = string(s.ended.Status)
	default:
		return nil, err
	}
	return s, nil
}
