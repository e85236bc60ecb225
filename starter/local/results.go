package local

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

// Results opens the store of a finished map and finds its newest results file there. Data is the folder that the map's command named, if
// it did.
func Results(ctx context.Context, data, id string, keys store.Keys) (st *store.Store, output string, err error) {
	if data == "" {
		data, err = Folder("local", id)
	} else {
		data, err = filepath.Abs(data)
	}
	if err != nil {
		return nil, "", err
	}
	folder := path.Join("maps", id)
	runs, _ := os.ReadDir(filepath.Join(data, "store", folder)) // one that cannot be read has none
	var newest time.Time
	for _, run := range runs {
		file := path.Join(folder, run.Name(), contract.ArraysOutput)
		if info, err := os.Stat(filepath.Join(data, "store", file)); err == nil && info.ModTime().After(newest) {
			newest, output = info.ModTime(), file
		}
	}
	if output == "" {
		return nil, "", mistake("there are no results of a finished map %s in %s; a local map keeps them if it was given an ID or a folder",
			id, data)
	}
	if st, err = store.Open(ctx, storeIn(data), keys); err != nil {
		return nil, "", &UnavailableError{err}
	}
	return st, output, nil
}
