package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"
)

// Delete removes an object; one that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	key, err := b.Key(name)
	if err != nil {
		return err
	}
	if err := b.blobs.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete %s: %w", b.Locate(key), err)
	}
	return nil
}

// DeleteAll deletes an object, or a folder with all that is in it. What is not there is
// no error.
func (b *Bucket) DeleteAll(ctx context.Context, name string) error {
	key, err := b.Key(name)
	if err != nil {
		return err
	}
	if b.dir != "" {
		if err := os.RemoveAll(b.onDisk(key)); err != nil {
			return fmt.Errorf("delete %s: %w", b.Locate(key), err)
		}
		_ = os.Remove(filepath.Dir(b.onDisk(key))) // if nothing else is in it
		return nil
	}
	deletes, within := errgroup.WithContext(ctx)
	deletes.SetLimit(Abreast)
	deletes.Go(func() error { return b.Delete(within, key) })
	for o, err := range b.Objects(ctx, key) {
		deletes.Go(func() error {
			if err != nil {
				return err
			}
			return b.Delete(within, o.Key)
		})
	}
	return deletes.Wait()
}

// Object is what lies under a key.
type Object struct {
	Key   string
	Bytes int64
	// Changed is when it was last written.
	Changed time.Time
}

// Objects yields every object below a folder. A folder that does not exist is empty.
// After an error nothing follows.
func (b *Bucket) Objects(ctx context.Context, folder string) iter.Seq2[Object, error] {
	return b.list(ctx, folder, true)
}

// Names returns the names of the objects directly in a folder, in no order.
func (b *Bucket) Names(ctx context.Context, folder string) (all []string, err error) {
	for o, err := range b.list(ctx, folder, false) {
		if err != nil {
			return nil, err
		}
		all = append(all, path.Base(o.Key))
	}
	return all, nil
}

// list yields the objects below a folder, or only those directly in it, by their keys
// alone on disk.
func (b *Bucket) list(ctx context.Context, folder string, deep bool) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		key, err := b.Key(folder)
		if err == nil && b.dir != "" {
			err = b.walkDisk(ctx, key, deep, yield)
		} else if err == nil {
			err = b.walkServer(ctx, key, deep, yield)
		}
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(Object{}, fmt.Errorf("list %s: %w", b.Locate(key), err))
		}
	}
}

// walkDisk reads folders itself: the blob library would look at every file once per page.
func (b *Bucket) walkDisk(ctx context.Context, folder string, deep bool, yield func(Object, error) bool) error {
	root := b.onDisk(folder)
	return filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		var o Object
		if inside, outside := filepath.Rel(b.dir, at); outside == nil {
			o.Key = filepath.ToSlash(inside)
		}
		if err == nil && !entry.IsDir() && deep {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				o.Bytes, o.Changed = info.Size(), info.ModTime()
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has gone meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir() && !deep && at != root:
			return fs.SkipDir
		case !entry.IsDir() && !yield(o, nil):
			return fs.SkipAll
		}
		return nil
	})
}

func (b *Bucket) walkServer(ctx context.Context, folder string, deep bool, yield func(Object, error) bool) error {
	delimiter := "/"
	if deep {
		delimiter = ""
	}
	objects := b.blobs.List(&blob.ListOptions{Prefix: folder + "/", Delimiter: delimiter})
	for {
		listed, err := objects.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case !listed.IsDir && !yield(Object{listed.Key, listed.Size, listed.ModTime}, nil):
			return fs.SkipAll
		}
	}
}
