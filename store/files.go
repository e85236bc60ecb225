package store

import (
	"context"
	"fmt"
	"io"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// fileKey is where a file lies that an item of a map keeps.
func fileKey(folder string, index int64, name string) string {
	return fmt.Sprintf("%s/files/%d/%s", folder, index, name)
}

// KeepFile stores a file of an item beside the parts of its map, in place of one with the same name.
func (s *Store) KeepFile(ctx context.Context, folder string, index int64, name string, from io.Reader, bytes int64) error {
	folder, err := s.Key(folder)
	if err != nil {
		return err
	}
	to, err := s.create(ctx, fileKey(folder, index, name), creation{bytes: bytes})
	if err != nil {
		return err
	}
	defer to.Abort()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.Close()
}

// OpenFile opens a file that an item keeps.
func (s *Store) OpenFile(ctx context.Context, folder string, index int64, name string) (io.ReadCloser, error) {
	if err := names.File(name); err != nil {
		return nil, err
	}
	folder, err := s.Key(folder)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, fileKey(folder, index, name), 0, -1)
}

// CopyFiles lets the item at an index of one map have the files of a result of another map.
func (s *Store) CopyFiles(ctx context.Context, from string, result gpumux.Result, to string, index int64) error {
	if len(result.Files) == 0 {
		return nil
	}
	from, err := s.Key(from)
	if err != nil {
		return err
	}
	for _, name := range result.Files {
		file, err := s.open(ctx, fileKey(from, result.Index, name), 0, -1)
		if err != nil {
			return err
		}
		err = s.KeepFile(ctx, to, index, name, file, file.body.Size())
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
