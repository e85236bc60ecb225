package files

import (
	"context"
	"errors"
	"iter"
	"os"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store/columns"
)

// Suits returns why a file of columns cannot hold what the filter leaves.
func (f Filter) Suits(path string, unordered bool) error {
	format := columns.FormatOf(path)
	switch {
	case format == "":
	case f.Values || f.Failed:
		return usage("--out %s: --values and --failed go with JSON lines; a %s file has all items", path, format)
	case unordered && format == columns.NPY:
		return usage("--out %s: a .npy file needs all results in order, and these come in any; name the file .parquet, which has an index", path)
	}
	return nil
}

func (o Output) writeColumns(ctx context.Context, file *os.File, from iter.Seq2[[]byte, error], causes *starter.Causes) error {
	to := columns.NewWriter(file, columns.FormatOf(o.Path))
	for line, err := range from {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = causes.AddLine(line)
		}
		if err == nil && len(line) > 0 {
			err = to.Add(line)
		}
		if err != nil {
			return err
		}
	}
	note, err := to.Finish()
	if err == nil && note != "" && o.Note != nil {
		o.Note("%s: %s", o.Path, note)
	}
	return err
}

// checkColumns says why a file of columns cannot lie at a place, before any work.
func (o Output) checkColumns(at place) error {
	if columns.FormatOf(o.Path) != "" && at.stream {
		return errors.New("it is no file; Parquet, Arrow and .npy need one")
	}
	return nil
}
