package files

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/store/columns"
)

// table reads the rows of a Parquet or an Arrow file.
func (s Source) table(ctx context.Context, in string) (input store.Input, label string, err error) {
	if s.Lines || s.Delimiter != 0 {
		return input, "", usage("--in %s: --lines and --delimiter go with text; a %s file has rows", in, filepath.Ext(in))
	}
	input = store.Input{Name: in}
	if strings.Contains(in, "://") {
		input.Open = func() (io.ReadCloser, error) {
			from, size, err := store.OpenURL(ctx, in)
			if err != nil {
				return nil, usage("--in: %v", err)
			}
			name, _, _ := strings.Cut(in, "?")
			return columns.Items(ctx, from, size, name, s.Columns)
		}
		return input, in, nil
	}
	if err := readable(in, false); err != nil {
		return input, "", err
	}
	input.Open = func() (io.ReadCloser, error) {
		file, err := os.Open(in)
		if err != nil {
			return nil, usage("--in: %v", err)
		}
		info, err := file.Stat()
		if err != nil {
			return nil, usage("--in: %v", err)
		}
		return columns.Items(ctx, file, info.Size(), in, s.Columns)
	}
	return input, filepath.Base(in), nil
}
