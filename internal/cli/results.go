package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func resultsCommand(a *app) *cobra.Command {
	f := &resultsFlags{}
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Fetch the results of a map",
		Long: `Fetch the results of a finished map, one JSON line per item in input order. --follow gives those of a running
map as they come, in order, until the map ends; Ctrl-C leaves the map running. --partial gives those that
there are of a map that runs, was cancelled or failed, or of an interrupted map with --local, in no order; the
exit code is 1 then.

An ID of a map with --local is looked for on this machine first; its command need not run any more.

The exit code is 0 when every item succeeded, 1 when some failed.`,
		Example: `  gpumux results embed-3fa92c01d4e5 --out vectors.jsonl
  gpumux results embed-3fa92c01d4e5 --failed | jq .fault.message
  gpumux results embed-3fa92c01d4e5 --follow --unordered | jq -c .value
  gpumux results embed-3fa92c01d4e5 --partial --out so-far.jsonl
  gpumux results embed-3fa92c01d4e5 --out results.jsonl --files plots`,
		Args: oneID,
	}
	c.Flags().StringVar(&f.out, "out", "-", "a file, JSON lines or .parquet; or - for standard output")
	c.Flags().StringVar(&f.schema, "schema", "", schemaUsage)
	c.Flags().StringVar(&f.files, "files", "", filesUsage)
	c.Flags().BoolVar(&f.values, "values", false, "only the values; null for a failed item")
	c.Flags().BoolVar(&f.openAI, "openai", false, openAIUsage)
	c.Flags().BoolVar(&f.failed, "failed", false, "only the failed items")
	c.Flags().BoolVar(&f.follow, "follow", false, "of a running map: the results as they come")
	registerExact(c.Flags(), &f.exact)
	c.Flags().BoolVar(&f.partial, "partial", false, "of a map that is not complete: the results that it has")
	c.Flags().BoolVar(&f.unordered, "unordered", false, unorderedUsage)
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runResults(c.Context(), a, args[0], f) }
	return c
}

type resultsFlags struct {
	filter
	out, files, schema         string
	follow, unordered, partial bool
}

func (f *resultsFlags) check() error {
	switch {
	case f.unordered && !f.follow:
		return usage("--unordered goes with --follow; the results of a finished map are in order")
	case f.values && (f.failed || f.openAI):
		return usage("--values does not go with --failed and --openai: a failed item has no value")
	case f.partial && f.follow:
		return usage("--partial and --follow exclude each other: one gives what is there, the other waits for the rest")
	}
	if f.files != "" {
		if err := checkFolder(f.files); err != nil {
			return err
		}
	}
	return f.suits(f.out)
}

func runResults(ctx context.Context, a *app, id string, f *resultsFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	to, err := chooseOutput(f.out, f.schema, a.Stdout, false, report.IsTerminal(a.Stdout))
	if err != nil {
		return err
	}
	s, err := soFar(ctx, a, id, starter.ReadOptions{SoFar: !f.follow, Unordered: f.unordered})
	if err != nil {
		return err
	}
	defer s.close()
	to.filter, to.kept = f.filter, &keptFiles{folder: f.files, from: s.results}
	switch {
	case s.whole, f.follow && s.handle != nil && s.handle.Running():
	case f.partial:
		return partial(ctx, a, s, to)
	case s.handle == nil:
		return usage("map %s is %s, and its own command writes its results; --partial gives those that it has so far", id, s.status)
	case s.handle.Running():
		return usage("map %s still runs; --follow gives its results as they come, --partial those that it has so far, `gpumux wait %s` "+
			"waits for all", id, id)
	case s.handle.Output != "":
		return explain(a, fmt.Errorf("%w; --partial gives the results that it has", s.ended))
	default:
		return explain(a, s.ended)
	}
	causes, err := to.write(ctx, s.lines)
	err = cmp.Or(err, *to.unfit)
	if errors.Is(err, errInterrupted) && f.follow {
		a.console.Say("map %s goes on", id)
		return exitInterrupted
	}
	if err != nil {
		return explain(a, err)
	}
	if to.kept.files > 0 && to.kept.folder == "" {
		a.console.Note("%s items kept files, %s in all; --files DIR writes them", humanize.Comma(to.kept.items), humanize.Comma(to.kept.files))
	}
	if s.handle == nil {
		return (&ending{Summary: gpumux.Summary{Failed: causes.Count}}).exit()
	}
	summary, err := s.handle.Wait(ctx)
	return cmp.Or(err, (&ending{Summary: summary}).exit())
}

func partial(ctx context.Context, a *app, s *sofar, to output) error {
	var n atomic.Int64
	to.count = &n
	if _, err := to.write(ctx, s.lines); err != nil || *to.unfit != nil {
		return cmp.Or(err, *to.unfit)
	}
	total := text.When(s.items >= 0, " of %s", humanize.Comma(s.items))
	a.console.Say("map %s, %s: it has %s%s results so far, which are not in order", s.id, s.status, humanize.Comma(n.Load()), total)
	return exitFailed
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

// stateHere finds the state that a command with --local left, unless --address names a
// server.
func stateHere(a *app, id string) (state local.State, here bool) {
	if a.address != "" || a.connectionFile != "" || starter.CheckID(id) != nil {
		return state, false
	}
	state, err := local.StateOf(id)
	return state, err == nil && state.Output != ""
}

// notHere adds to the error of a server that stateHere found no map with the ID.
func notHere(a *app, id string, err error) error {
	if a.address != "" || a.connectionFile != "" {
		return err
	}
	return fmt.Errorf("%w; no map of this machine has the ID %s (`gpumux local` lists them)", err, id)
}

func soFarHere(ctx context.Context, state local.State) (*sofar, error) {
	found, err := state.Results(ctx)
	if err != nil {
		return nil, err
	}
	return &sofar{id: state.ID, status: state.State, items: -1, whole: found.Whole, lines: found.Lines, results: found.Map, close: found.Close}, nil
}

// soFar finds a map. Its lines follow it to its end unless o says SoFar.
func soFar(ctx context.Context, a *app, id string, o starter.ReadOptions) (s *sofar, err error) {
	o.Arrays = true // what writes them reads them
	if state, here := stateHere(a, id); here {
		return soFarHere(ctx, state)
	}
	conn, err := a.connectWithStore(ctx)
	if err != nil {
		return nil, notHere(a, id, err)
	}
	defer func() {
		if err != nil {
			conn.close()
		}
	}()
	h, err := conn.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	s = &sofar{id: h.ID, status: string(starter.StatusRunning), items: h.Items, lines: h.Lines(ctx, o), handle: h, results: h, close: conn.close}
	if h.Running() {
		return s, nil
	}
	summary, err := h.Wait(ctx)
	if errors.As(err, &s.ended) {
		s.status = string(s.ended.Status)
		return s, nil
	}
	if err == nil {
		s.status, s.items, s.whole = string(starter.StatusCompleted), summary.Items, true
		s.results = conn.Completed(summary)
		s.lines = s.results.Lines(ctx, o)
	}
	return s, err
}

// keptFiles fetches the files that items of a map keep, while its results are written.
type keptFiles struct {
	// folder gets them, each as <index>/<name>. Default: they are only counted.
	folder string
	// from is the map that has them.
	from *starter.Handle
	// files counts the files, Items the items that keep any.
	files, items int64
}

func checkFolder(folder string) error {
	err := os.MkdirAll(folder, 0o777)
	if err == nil {
		err = unix.Access(folder, unix.W_OK)
	}
	if err != nil {
		return usage("--files %s: no files can be written there: %v", folder, err)
	}
	return nil
}

// along yields lines of results, each after its files were fetched.
func (k *keptFiles) along(ctx context.Context, lines iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line, err := range lines {
			if err == nil && bytes.Contains(line, []byte(`,"files":[`)) { // perhaps in its value
				err = k.fetch(ctx, line)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

func (k *keptFiles) fetch(ctx context.Context, line []byte) error {
	result, err := results.ParseStored(line)
	if err != nil || len(result.Files) == 0 {
		return err
	}
	k.items++
	for _, name := range result.Files {
		k.files++
		if k.folder == "" {
			continue
		}
		if err := k.write(ctx, result.Index, name); err != nil {
			return err
		}
	}
	return nil
}

// write fetches one file.
func (k *keptFiles) write(ctx context.Context, index int64, name string) error {
	if err := names.File(name); err != nil {
		return err
	}
	from, err := k.from.File(ctx, index, name)
	if err != nil {
		return err
	}
	defer from.Close()
	folder := filepath.Join(k.folder, strconv.FormatInt(index, 10))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	return place{path: filepath.Join(folder, name)}.replace("", func(file *os.File) error {
		_, err := io.Copy(file, from)
		return err
	})
}
