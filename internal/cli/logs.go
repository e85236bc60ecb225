package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

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
