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

// DeleteAll deletes an object, or a folder with its contents. A missing one is no error.
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

type Object struct {
	Key     string
	Bytes   int64
	Changed time.Time
}

// Objects yields every object below a folder, which need not exist. An error is the last.
func (b *Bucket) Objects(ctx context.Context, folder string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		key, err := b.Key(folder)
		page := 1000
		if b.dir != "" {
			page = 1 << 18 // for each page the blob library walks over all files
		}
		for token := blob.FirstPageToken; err == nil && len(token) > 0; {
			var found []*blob.ListObject
			found, token, err = b.blobs.ListPage(ctx, token, page, &blob.ListOptions{Prefix: key + "/"})
			for _, o := range found {
				if !yield(Object{o.Key, o.Size, o.ModTime}, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(Object{}, fmt.Errorf("list %s: %w", b.Locate(key), err))
		}
	}
}

// Names returns the names of the objects directly in a folder, in no order.
func (b *Bucket) Names(ctx context.Context, folder string) (all []string, err error) {
	key, err := b.Key(folder)
	if err == nil && b.dir != "" {
		all, err = b.namesOnDisk(key)
	} else if err == nil {
		all, err = b.namesOnServer(ctx, key)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", b.Locate(key), err)
	}
	return all, nil
}

// namesOnDisk reads the folder alone: the blob library would walk over what is below it.
func (b *Bucket) namesOnDisk(folder string) (all []string, err error) {
	entries, err := os.ReadDir(b.onDisk(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			all = append(all, entry.Name())
		}
	}
	return all, err
}

func (b *Bucket) namesOnServer(ctx context.Context, folder string) (all []string, err error) {
	objects := b.blobs.List(&blob.ListOptions{Prefix: folder + "/", Delimiter: "/"})
	for {
		o, err := objects.Next(ctx)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if !o.IsDir {
			all = append(all, path.Base(o.Key))
		}
	}
}

// Ahead calls f for each input, so many at a time, and yields the answers in order.
func Ahead[In, Out any](limit int, inputs iter.Seq[In], f func(In) (Out, error)) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		type answer struct {
			out Out
			err error
		}
		var calls []chan answer
		defer func() {
			for _, c := range calls {
				<-c
			}
		}()
		first := func() bool {
			a := <-calls[0]
			calls = calls[1:]
			return yield(a.out, a.err)
		}
		for in := range inputs {
			c := make(chan answer, 1)
			go func() {
				out, err := f(in)
				c <- answer{out, err}
			}()
			if calls = append(calls, c); len(calls) == limit && !first() {
				return
			}
		}
		for len(calls) > 0 && first() {
		}
	}
}
