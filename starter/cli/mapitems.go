package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/local"
)

// registerKey registers the flags of what results have of their items.
func (f *mapFlags) registerKey(flags *pflag.FlagSet) {
	flags.StringVar(&f.key, "key", "", "the `field` of the items, objects, that results have as \"key\", such as id")
	flags.BoolVar(&f.withItem, "with-item", false, "results have their items, as \"item\"")
}

// source is what the flags say of the items.
func (f *mapFlags) source(stdin io.Reader) files.Source {
	return files.Source{In: f.in, Columns: f.columns, Lines: f.lines, Delimiter: f.comma, Stdin: stdin, Range: f.rng, Glob: f.glob}
}

// results is the ID of the map whose values are the items, where --in names one.
func (f *mapFlags) results() (id string, values bool) {
	if len(f.in) != 1 {
		return "", false
	}
	return names.CutValues(f.in[0])
}

// items reads the items here.
func (a *program) items(ctx context.Context, f *mapFlags) (files.Items, error) {
	id, values := f.results()
	if !values {
		return a.read(ctx, f)
	}
	_, keys, err := a.ReadKeys()
	if err != nil {
		return files.Items{}, err
	}
	st, output, err := local.Results(ctx, f.data, id, keys)
	if err != nil {
		return files.Items{}, err
	}
	defer st.Close()
	return files.Values(func() (io.ReadCloser, error) { return st.Objects.Read(ctx, output, 0, -1) }, f.in[0])
}

// slowInput is when people are told that a map waits for the end of its input.
const slowInput = 2 * time.Second

// read reads files, URLs and standard input to their ends.
func (a *program) read(ctx context.Context, f *mapFlags) (files.Items, error) {
	if slices.Contains(f.in, "-") {
		told := time.AfterFunc(slowInput, func() {
			a.Console.Note("a map reads standard input to its end before its first item runs; `gpumux stream` runs items as they come")
		})
		defer told.Stop()
	}
	return f.source(a.Stdin).Read(ctx)
}

// overURL reports whether the items are where workers may be able to read them: at a URL, or results of a map.
func (f *mapFlags) overURL() bool {
	_, values := f.results()
	return values || len(f.in) == 1 && strings.Contains(f.in[0], "://")
}

// itemsOf are the items that the flags name: the workers read a URL where it lies when it is in their store, as the results of a map are.
// All else is read here.
func (a *program) itemsOf(ctx context.Context, conn *app.Connection, f *mapFlags) (files.Items, error) {
	if id, values := f.results(); values {
		url, err := conn.ValuesOf(ctx, id)
		return files.Items{URL: url, Label: f.in[0]}, unfit(err)
	}
	if f.overURL() && f.comma == 0 && !f.lines && conn.Holds(ctx, f.in[0]) {
		return files.Items{URL: f.in[0], Columns: f.columns, Label: f.in[0]}, nil
	}
	return a.read(ctx, f)
}

// put gives a map its items, of which the first must have the key.
func put(over files.Items, m *starter.Map) error {
	over.Put(m)
	if err := m.CheckKey(); err != nil {
		return app.Usage("--key: %v", err)
	}
	return nil
}

// unfit is the error for a map over whose results no other can run.
func unfit(err error) error {
	if errors.As(err, new(*starter.MapFailed)) || errors.As(err, new(*starter.Canceled)) || errors.As(err, new(*starter.Terminated)) {
		return app.Usage("--in: %v; only a map that has completed gives items", err)
	}
	return err
}

// checkItems finds every mistake in where the items come from, and reads the delimiter.
func (f *mapFlags) checkItems(m *app.Mistakes, changed func(string) bool) {
	given := 0
	for _, source := range []struct {
		flag   string
		values []string
	}{{"in", f.in}, {"range", []string{f.rng}}, {"glob", []string{f.glob}}} {
		if changed(source.flag) {
			given++
			if slices.Contains(source.values, "") {
				m.Add("--%s is empty", source.flag)
			}
		}
	}
	if given == 0 {
		m.Add("nothing to map over; give one of --in FILE, --range START:END and --glob PATTERN")
	} else if given > 1 {
		m.Add("give only one of --in, --range and --glob")
	}
	if changed("delimiter") {
		var err error
		if f.comma, err = items.ParseDelimiter(f.delimiter); err != nil {
			m.Add("--delimiter: %v", err)
		}
		if !changed("in") {
			m.Add("--delimiter goes with --in")
		}
	}
	if changed("columns") && len(f.columns) == 0 {
		m.Add("--columns is empty; name columns, such as id,text")
	}
	if changed("columns") && !changed("in") {
		m.Add("--columns goes with --in, a Parquet or Arrow file")
	}
	if f.lines && (!changed("in") || changed("delimiter")) {
		m.Add("--lines goes with --in, whose lines are text, and without --delimiter")
	}
	for _, in := range f.in {
		id, values := names.CutValues(in)
		if !values {
			if err := names.Columns(in, f.columns); err != nil {
				m.Add("--columns %v", err)
			}
			continue
		}
		if err := starter.CheckID(id); err != nil {
			m.Add("--in %s: %v", in, err)
		}
		if len(f.in) > 1 || f.lines || changed("delimiter") || changed("columns") {
			m.Add("--in %s stands alone: without other inputs, and without --lines, --delimiter and --columns", in)
			break
		}
	}
	switch {
	case changed("key") && f.key == "":
		m.Add("--key is empty; name a field of the items, such as id")
	case f.key != "" && (f.lines || !changed("in")):
		m.Add("--key goes with --in, whose items are objects, and without --lines")
	}
	if i := slices.Index(f.in, "-"); i >= 0 && slices.Contains(f.in[i+1:], "-") {
		m.Add("--in - is given twice; standard input can be read once")
	}
}
