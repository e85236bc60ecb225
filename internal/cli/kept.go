package cli

import (
	"bytes"
	"context"
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
