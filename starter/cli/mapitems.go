package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/local"
)

// results is the ID of the map whose values are the items, where --in names one.
func (f *mapFlags) results() (id string, values bool) {
	if len(f.source.In) != 1 {
		return "", false
	}
	return names.CutValues(f.source.In[0])
}

func items(ctx context.Context, a *app.App, f *mapFlags) (files.Items, error) {
	id, values := f.results()
	if !values {
		return readItems(ctx, a, f)
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
	return files.Values(func() (io.ReadCloser, error) { return st.Read(ctx, output, 0, -1) }, f.source.In[0])
}

// slowInput is when people are told that a map waits for the end of its input.
const slowInput = 2 * time.Second

// read reads files, URLs and standard input to their ends.
func readItems(ctx context.Context, a *app.App, f *mapFlags) (files.Items, error) {
	if slices.Contains(f.source.In, "-") {
		told := time.AfterFunc(slowInput, func() {
			a.Console.Note("a map reads standard input to its end before its first item runs; `gpumux stream` runs items as they come")
		})
		defer told.Stop()
	}
	return f.source.Read(ctx)
}

// overURL reports whether workers may be able to read the items themselves.
func (f *mapFlags) overURL() bool {
	_, values := f.results()
	return values || len(f.source.In) == 1 && strings.Contains(f.source.In[0], "://")
}

// itemsOf are the items that the flags name: the workers read a URL where it lies when it
// is in their store, as the results of a map are. All else is read here.
func itemsOf(ctx context.Context, a *app.App, conn *app.Connection, f *mapFlags) (files.Items, error) {
	if id, values := f.results(); values {
		url, err := conn.ValuesOf(ctx, id)
		return files.Items{URL: url, Label: f.source.In[0]}, unfit(err)
	}
	if f.overURL() && f.source.Delimiter == 0 && !f.source.Lines && conn.Holds(ctx, f.source.In[0]) {
		return files.Items{URL: f.source.In[0], Columns: f.source.Columns, Label: f.source.In[0]}, nil
	}
	return readItems(ctx, a, f)
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
	if errors.As(err, new(*starter.EndedError)) {
		return app.Usage("--in: %v; only a map that has completed gives items", err)
	}
	return err
}
