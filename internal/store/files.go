package store

import (
	"context"
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/objects"
)

func (f *Folder) fileKey(index int64, name string) string {
	return fmt.Sprintf("%s/files/%d/%s", f.key, index, name)
}

// KeepFile stores a file of an item, in place of one with the same name.
func (f *Folder) KeepFile(ctx context.Context, index int64, name string, from io.Reader, bytes int64) error {
	return f.in.Put(ctx, f.fileKey(index, name), from, objects.Creation{Bytes: bytes})
}

func (f *Folder) OpenFile(ctx context.Context, index int64, name string) (io.ReadCloser, error) {
	if err := names.File(name); err != nil {
		return nil, err
	}
	return f.in.Read(ctx, f.fileKey(index, name), 0, -1)
}

// CopyFiles gives the same item of another map the files of a result.
func (f *Folder) CopyFiles(ctx context.Context, result gpumux.Result, to *Folder) error {
	for _, name := range result.Files {
		file, err := f.in.Read(ctx, f.fileKey(result.Index, name), 0, -1)
		if err != nil {
			return err
		}
		err = to.KeepFile(ctx, result.Index, name, file, file.Size())
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
