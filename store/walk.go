package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

// Object is what lies under a key.
type Object struct {
	Key   string
	Bytes int64
	// Changed is when it was last written.
	Changed time.Time
}

// Objects yields every object below a folder. A folder that does not exist is empty. After an error nothing follows.
func (s *Store) Objects(ctx context.Context, folder string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		key, err := s.Key(folder)
		if err == nil && s.home.dir != "" {
			err = s.walkDisk(ctx, key, yield)
		} else if err == nil {
			err = s.walkServer(ctx, key, yield)
		}
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(Object{}, fmt.Errorf("list %s: %w", s.Locate(key), err))
		}
	}
}

// walkDisk reads folders itself: the blob library would look at every file once per page.
func (s *Store) walkDisk(ctx context.Context, folder string, yield func(Object, error) bool) error {
	return filepath.WalkDir(filepath.Join(s.home.dir, filepath.FromSlash(folder)), func(at string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil && !entry.IsDir() {
			info, err = entry.Info()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has gone meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir():
			return nil
		}
		inside, err := filepath.Rel(s.home.dir, at)
		if err == nil && !yield(Object{filepath.ToSlash(inside), info.Size(), info.ModTime()}, nil) {
			return fs.SkipAll
		}
		return err
	})
}

func (s *Store) walkServer(ctx context.Context, folder string, yield func(Object, error) bool) error {
	objects := s.home.bucket.List(&blob.ListOptions{Prefix: folder + "/"})
	for {
		listed, err := objects.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case !yield(Object{listed.Key, listed.Size, listed.ModTime}, nil):
			return fs.SkipAll
		}
	}
}

// DeleteAll deletes a folder with all that is in it, or an object. What is not there is no error.
func (s *Store) DeleteAll(ctx context.Context, name string) error {
	key, err := s.Key(name)
	if err != nil {
		return err
	}
	if s.home.dir != "" {
		at := filepath.Join(s.home.dir, filepath.FromSlash(key))
		if err := os.RemoveAll(at); err != nil {
			return fmt.Errorf("delete %s: %w", s.Locate(key), err)
		}
		_ = os.Remove(filepath.Dir(at)) // if nothing else is in it
		return nil
	}
	deletes, within := errgroup.WithContext(ctx)
	deletes.SetLimit(abreast)
	deletes.Go(func() error { return s.Delete(within, key) })
	for o, err := range s.Objects(ctx, key) {
		deletes.Go(func() error {
			if err != nil {
				return err
			}
			return s.Delete(within, o.Key)
		})
	}
	return deletes.Wait()
}

// SourceOf is the name of the source whose results a folder of parts holds, or "" when the items came with the map. What is no manifest is
// an *OwnerError.
func (s *Store) SourceOf(ctx context.Context, parts string) (string, error) {
	m, err := s.readManifest(ctx, parts)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	source, _, named := strings.Cut(m.Owner.Input, contentMark)
	if !named {
		return "", nil
	}
	return source, nil
}

// contentMark stands in an owner's input between the name of a source and its hash.
const contentMark = ", content "
