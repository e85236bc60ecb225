package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func streamCommand(a *app) *cobra.Command {
	f := &mapFlags{taskFlags: taskFlags{local: true}}
	c := &cobra.Command{
		Use:   "stream TASK",
		Short: "Run a task over items as they come, without a server",
		Long: `Run a task over the items of standard input, or of files, as they come, and write one result per item, in
order: {"index":0,"value":…}, or {"index":7,"fault":{…}}. The input may never end. TASK is file.py:function,
module:function or file.R:function, or a command after --, as for map --local.

Slots, budgets, faults and retries are those of a map. But nothing is kept: what has no result when the
command ends is lost. It needs no server and starts at once.

The result of a line that is no item is a fault, bad_input, and the stream goes on. Where nobody can tell
where the next item begins, as in a damaged archive or behind a quote of CSV that is never closed, the stream
ends: the results of what came before are written, and the exit code is 2.`,
		Example: `  tail -n +1 -F texts.jsonl | gpumux stream embed.py:embed > vectors.jsonl
  gpumux stream score.py:score --slots 2 --memory 8GiB --unordered < items.jsonl
  ls *.png | gpumux stream --lines --output text -- identify {}`,
		Args: cobra.ArbitraryArgs,
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.source.in, "in", []string{"-"}, "items: JSON lines, .csv or .tsv, plain, .gz or .zst: a `file`, the files of a folder or a pattern, - for standard input, or a URL; given again, the items after those")
	f.registerText(flags)
	flags.StringVar(&f.out, "out", "-", "results: a file, or - for standard output")
	flags.BoolVar(&f.unordered, "unordered", false, unorderedUsage)
	f.registerAttempts(flags)
	flags.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	flags.StringSliceVar(&f.input.Ladder, "pool", nil, "gpu or cpu (default what the machine has)")
	registerExact(flags, &f.exact)
	f.registerHere(flags, "")
	c.RunE = func(c *cobra.Command, args []string) error { return runStream(a, c, args, f) }
	return c
}

func (f *mapFlags) checkStream(c *cobra.Command, args []string) error {
	var m mistakes
	f.readTask(&m, c, args)
	f.checkItems(&m, func(flag string) bool { return flag == "in" || c.Flags().Changed(flag) })
	f.checkInput(&m, c)
	m.when(len(f.input.Ladder) > 1, "--pool names several pools; a stream has the slots of one")
	m.when(len(f.slots) > 1, "--slots names several pools; a stream has the slots of one")
	f.checkOut(&m)
	return m.err()
}

func runStream(a *app, c *cobra.Command, args []string, f *mapFlags) error {
	if err := f.checkStream(c, args); err != nil {
		return err
	}
	r, err := newMapRun(a, f)
	if err != nil {
		return err
	}
	o, err := f.optionsHere(c.Context(), a, &f.input)
	if err != nil {
		return err
	}
	f.source.stdin = a.Stdin
	ctx, stop := context.WithCancelCause(c.Context())
	defer stop(nil)
	if r.out.path == "" {
		watchReader(ctx, a.Stdout, stop)
	}
	var count atomic.Int64
	in := f.input
	in.ArgFile = f.argFile // there is no store to name it in
	r.out.count = &count
	var ended error // the input, before its end
	causes, err := r.out.write(ctx, local.Stream(ctx, o, local.StreamOptions{
		Items: func(ctx context.Context, give func(item []byte, wrong *gpumux.SourceError) error) (err error) {
			begun, unchecked := false, f.input.Key != ""
			err = f.source.each(ctx, func(item []byte, wrong *gpumux.SourceError) error {
				if unchecked && wrong == nil {
					unchecked = false
					if err := text.CheckField(item, f.input.Key); err != nil {
						return usage("--key: %v", err)
					}
				}
				begun = true
				return give(item, wrong)
			})
			if begun && ctx.Err() == nil { // what was read is finished and written first
				ended, err = err, nil
			}
			return err
		},
		Unordered: f.unordered, Input: in,
	}))
	var fault *gpumux.Fault
	switch {
	case errors.Is(err, syscall.EPIPE):
		a.console.Note("nobody reads the results any more")
		return exitInterrupted
	case errors.As(err, &fault):
		a.console.Write([]byte(report.FaultText(*fault)))
		if fault.Kind == gpumux.FaultBadInput {
			return usage("%v", fault)
		}
		return err
	case err != nil:
		return inFlags(err)
	}
	err = tellStream(a, count.Load(), causes)
	if ended != nil {
		return fmt.Errorf("%w; what follows was not read, and the results of what came before are written", ended)
	}
	return err
}

func tellStream(a *app, count int64, causes starter.Causes) error {
	failed := causes.Count
	a.console.Note("%s items, %s failed", humanize.Comma(count), humanize.Comma(failed))
	if failed == 0 {
		return nil
	}
	if !a.console.Quiet {
		report.Causes(report.Visible(a.console), "  ", failed, causes.Sorted(), false)
	}
	return exitFailed
}
