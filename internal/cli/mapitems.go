package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
)

// results is the ID of the map whose values are the items, where --in names one.
func (f *mapFlags) results() (id string, values bool) {
	if len(f.source.in) != 1 {
		return "", false
	}
	return strings.CutPrefix(f.source.in[0], names.ResultsScheme)
}

func itemsHere(ctx context.Context, a *app, f *mapFlags, m *starter.Map) error {
	id, values := f.results()
	if !values {
		return readItems(ctx, a, f, m)
	}
	state, err := local.StateOf(id)
	if err != nil {
		return err
	}
	keys, err := a.readKeys()
	if err != nil {
		return err
	}
	none := usage("--in results:%s: there are no results of a finished map %s in %s; a local map keeps them if it was given an --id", id, id, state.Path)
	if state.Output == "" {
		return none
	}
	found, err := state.Results(ctx, keys)
	if err != nil {
		return err
	}
	defer found.Close()
	if !found.Whole {
		return none
	}
	err = useValues(func() (io.ReadCloser, error) { return found.File(ctx) }, f.source.in[0], m)
	return checkKey(err, m)
}

// connectWithItems connects to the server of a map and finds its items. It reads local
// items first, so that it finds their mistakes before it reaches anything.
func connectWithItems(ctx context.Context, a *app, f *mapFlags, m *starter.Map) (*connection, error) {
	_, values := f.results()
	atServer := values || len(f.source.in) == 1 && strings.Contains(f.source.in[0], "://")
	if !atServer {
		if err := readItems(ctx, a, f, m); err != nil {
			return nil, err
		}
	}
	conn, err := a.connectWithStore(ctx)
	if err != nil || !atServer {
		return conn, err
	}
	if err := itemsThere(ctx, a, conn, f, m); err != nil {
		conn.close()
		return nil, err
	}
	return conn, nil
}

const slowInput = 2 * time.Second

func readItems(ctx context.Context, a *app, f *mapFlags, m *starter.Map) error {
	if slices.Contains(f.source.in, "-") {
		slow := time.AfterFunc(slowInput, func() {
			a.console.Note("a map reads standard input to its end before its first item runs; `gpumux stream` runs items as they come")
		})
		defer slow.Stop()
	}
	f.source.stdin = a.Stdin
	return checkKey(f.source.read(ctx, m), m)
}

// checkKey makes sure that the first item has the key, if the items could be read.
func checkKey(err error, m *starter.Map) error {
	if err == nil {
		if err = m.CheckKey(); err != nil {
			err = usage("--key: %v", err)
		}
	}
	return err
}

// itemsThere finds the items that are no file of this machine. Workers read the results
// of a map, and a URL in their store, where they lie; any other URL is read here.
func itemsThere(ctx context.Context, a *app, conn *connection, f *mapFlags, m *starter.Map) (err error) {
	m.Label = f.source.in[0]
	if id, values := f.results(); values {
		if m.Input.Source, err = conn.ValuesOf(ctx, id); errors.As(err, new(*starter.EndedError)) {
			return usage("--in: %v; only a map that has completed gives items", err)
		}
		return err
	}
	if f.source.delimiter == 0 && len(f.source.text) == 0 && !f.source.lines && conn.Holds(ctx, f.source.in[0]) {
		m.Input.Source, m.Input.Columns = f.source.in[0], f.source.columns
		return nil
	}
	return readItems(ctx, a, f, m)
}
