package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/starter"
)

// Kept fetches the files that items of a map keep, while its results are written.
type Kept struct {
	// Folder gets them, each as <index>/<name>. Default: they are only counted.
	Folder string
	// From is the map that has them.
	From *starter.Handle
	// Files counts the files, Items the items that keep any.
	Files, Items int64
}

// CheckFolder makes the folder of --files, or returns why it cannot be written.
func CheckFolder(folder string) error {
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
func (k *Kept) along(ctx context.Context, lines iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
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

func (k *Kept) fetch(ctx context.Context, line []byte) error {
	result, err := results.ParseStored(line)
	if err != nil || len(result.Files) == 0 {
		return err
	}
	k.Items++
	for _, name := range result.Files {
		k.Files++
		if k.Folder == "" {
			continue
		}
		if err := k.write(ctx, result.Index, name); err != nil {
			return err
		}
	}
	return nil
}

// write fetches one file. It appears whole or not at all.
func (k *Kept) write(ctx context.Context, index int64, name string) error {
	if err := names.File(name); err != nil {
		return err
	}
	from, err := k.From.File(ctx, index, name)
	if err != nil {
		return err
	}
	defer from.Close()
	folder := filepath.Join(k.Folder, strconv.FormatInt(index, 10))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	at := place{path: filepath.Join(folder, name)}
	to, err := at.create("")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name()) // it has another name by then when all went well
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), at.path)
}
